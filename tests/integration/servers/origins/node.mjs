// One application for each of Node's frameworks, whose routes tell their parameters.
// Usage: NODE_MODULES=DIRECTORY node node.mjs express|fastify|fastify4|hono|koa SOCKET
import { createServer } from "node:http";
import { createRequire } from "node:module";

const load = createRequire(`${process.env.NODE_MODULES}/`);
const [framework, socket] = process.argv.slice(2);
const told = (name, params, query) => JSON.stringify([name, { ...params }, { ...query }]);

const applications = {
  express() {
    const app = load("express")();
    app.disable("etag");
    for (const path of ["/", "/named", "/:a", "/:a/:b", "/:a/:b/:c"]) {
      app.get(path, (request, response) => response.send(told(path, request.params, request.query)));
    }
    app.get("/*rest", (request, response) => response.send(told("rest", request.params, request.query)));
    return createServer(app).listen(socket);
  },
  fastify(name = "fastify") {
    const app = load(name)();
    for (const path of ["/", "/:a", "/:a/:b", "/:a/:b/:c", "/*"]) {
      app.get(path, async (request) => told(path, request.params, request.query));
    }
    return app.listen({ path: socket });
  },
  koa() {
    const Koa = load("koa");
    const { Router } = load("@koa/router");
    const app = new Koa({ proxy: false });
    app.silent = true;
    const router = new Router();
    for (const path of ["/", "/:a", "/:a/:b", "/:a/:b/:c", "/{*rest}"]) {
      router.get(path, (context) => {
        context.body = told(path, context.params, context.query);
      });
    }
    app.use(router.routes());
    return createServer(app.callback()).listen(socket);
  },
  hono() {
    const { Hono } = load("hono");
    const { createAdaptorServer } = load("@hono/node-server");
    const app = new Hono();
    for (const path of ["/", "/:a", "/:a/:b", "/:a/:b/:c", "*"]) {
      app.get(path, (context) => context.text(told(path, context.req.param(), context.req.query())));
    }
    return createAdaptorServer({ fetch: app.fetch }).listen(socket);
  },
};

if (framework === "fastify4") applications.fastify("fastify4");
else applications[framework]();
