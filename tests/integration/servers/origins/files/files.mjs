// Files of a directory by express.static or koa-static. Usage: NODE_MODULES=DIRECTORY node files.mjs express|koa DIRECTORY SOCKET
import { createServer } from "node:http";
import { createRequire } from "node:module";

const load = createRequire(`${process.env.NODE_MODULES}/`);
const [framework, directory, socket] = process.argv.slice(2);

const applications = {
  express() {
    const express = load("express");
    return express().use(express.static(directory));
  },
  koa() {
    const Koa = load("koa");
    const app = new Koa();
    app.silent = true;
    return app.use(load("koa-static")(directory)).callback();
  },
};
createServer(applications[framework]()).listen(socket);
