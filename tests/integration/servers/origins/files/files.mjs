// Files of a directory by what serves them in a framework.
// Usage: NODE_MODULES=DIRECTORY node files.mjs express|fastify|hono|koa DIRECTORY SOCKET
import { createServer } from "node:http";
import { createRequire } from "node:module";

const load = createRequire(`${process.env.NODE_MODULES}/`);
const [framework, directory, socket] = process.argv.slice(2);

const applications = {
  express() {
    const express = load("express");
    return createServer(express().use(express.static(directory)));
  },
  async fastify() {
    const app = load("fastify")();
    app.register(load("@fastify/static"), { root: directory });
    await app.ready();
    return app.server;
  },
  hono() {
    const { Hono } = load("hono");
    const { createAdaptorServer } = load("@hono/node-server");
    const { serveStatic } = load("@hono/node-server/serve-static");
    const app = new Hono();
    app.use("*", serveStatic({ root: directory }));
    return createAdaptorServer({ fetch: app.fetch });
  },
  koa() {
    const Koa = load("koa");
    const app = new Koa();
    app.silent = true;
    return createServer(app.use(load("koa-static")(directory)).callback());
  },
};
(await applications[framework]()).listen(socket);
