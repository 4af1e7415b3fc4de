// What each stage of an explained URL does, in a few words.
"use strict";

export const STAGES = {
  authority: "the host and port of the site",
  "empty-path": "an empty path is /",
  fragment: "what is behind # is for browsers",
  parameters: "path parameters, from ; on, go",
  ring: "each octet is decoded or encoded as the application writes it",
  charset: "an older charset becomes UTF-8, or back",
  slashes: "several slashes become one",
  "dot-segments": ". and .. are resolved",
  "index-names": "the name of an index page goes",
  "trailing-slash": "the last slash is added or goes",
  rewrite: "the profile's own rules",
  query: "the octets of the query",
  "query-charset": "an older charset becomes UTF-8, or back",
  "query-allow": "unlisted parameters go",
  "query-drop": "listed parameters go",
  "query-defaults": "default values go",
  "query-drop-empty": "empty parameters go",
  "query-sort": "parameters are sorted by name",
  "query-drop-empty-mark": "a ? with nothing behind it goes",
  semicolon: "; begins the query, or parts it",
  readings: "a server may take it for this path",
  guards: "the bounds on access that hold",
  loose: "not stored: a server may take it for this path",
  upstream: "what the origin server is asked for",
};
