// Handlers behind net/http's ServeMux, which tell what they are given of a target. Usage: origin SOCKET
package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
)

func teller(name string) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		body, err := json.Marshal([]any{name, []byte(request.URL.Path), request.URL.Query()})
		if err != nil {
			panic(err)
		}
		response.Write(body)
	}
}

func main() {
	mux := http.NewServeMux()
	for _, pattern := range []string{"/", "/admin/", "/foo/", "/foo/bar", "/x.php"} {
		mux.HandleFunc(pattern, teller(pattern))
	}
	mux.Handle("/stripped/", http.StripPrefix("/stripped", teller("stripped")))
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener, mux))
}
