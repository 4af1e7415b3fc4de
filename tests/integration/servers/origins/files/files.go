// Files of a directory by net/http, behind a ServeMux or without one. Usage: files mux|bare DIRECTORY SOCKET
package main

import (
	"net"
	"net/http"
	"os"
)

func main() {
	var handler http.Handler = http.FileServer(http.Dir(os.Args[2]))
	if os.Args[1] == "mux" {
		mux := http.NewServeMux()
		mux.Handle("/", handler)
		handler = mux
	}
	listener, err := net.Listen("unix", os.Args[3])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener, handler))
}
