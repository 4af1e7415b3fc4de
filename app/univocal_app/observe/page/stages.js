// What each stage of an explained URL does, in a few words.
"use strict";

export const STAGES = {
  authority: "the host and port by which the site is known",
  "empty-path": "an empty path is /",
  fragment: "what stands behind # is for browsers alone",
  parameters: "path parameters, from ; on, are taken away",
  ring: "each octet is decoded or encoded as the application writes it",
  charset: "octets of an older charset become UTF-8, or the other way round",
  slashes: "slashes that follow one another become one",
  "dot-segments": ". and .. are resolved",
  "index-names": "the name of an index page is taken away",
  "trailing-slash": "the slash at the end is added or taken away",
  rewrite: "the profile's own rules",
  query: "the octets of the query",
  "query-charset": "octets of an older charset become UTF-8, or the other way round",
  "query-allow": "parameters that are not listed are taken away",
  "query-drop": "parameters that are listed are taken away",
  "query-defaults": "parameters with their default value are taken away",
  "query-drop-empty": "parameters without a value are taken away",
  "query-sort": "parameters are sorted by name",
  "query-drop-empty-mark": "a ? with nothing behind it is taken away",
  upstream: "what the origin server is asked for",
};
