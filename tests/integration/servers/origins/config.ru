# An application without routes, which tells what Rack is given of a target.
require "json"

run(lambda do |env|
  told = %w[SCRIPT_NAME PATH_INFO QUERY_STRING].map { |name| env[name].unpack1("H*") }
  body = JSON.generate(told)
  [200, { "Content-Type" => "application/json", "Content-Length" => body.bytesize.to_s }, [body]]
end)
