// Express with cors() and compression(), as tenants share one. Usage: NODE_MODULES=DIRECTORY node express.mjs PORT
import { createRequire } from "node:module";

const load = createRequire(`${process.env.NODE_MODULES}/`);
const express = load("express");
const app = express();
app.use(load("cors")({ origin: [/^http:\/\/[ab]\.example$/], credentials: true }));
app.use(load("compression")({ threshold: 0 }));
app.get("/:name", (request, response) => {
  response.set("Cache-Control", "max-age=0, must-revalidate");
  response.type("text").send(`${request.params.name} `.repeat(500));
});
app.listen(Number(process.argv[2]), "127.0.0.1");
