# A Sinatra application, whose routes tell what they are given of a target.
require "json"
require "sinatra/base"

class Origin < Sinatra::Base
  set :environment, :production
  set :logging, false

  def told(name, *given)
    body = JSON.generate([name, *given.map { |text| text.unpack1("H*") }, params.to_a.inspect.unpack1("H*")])
    [200, { "Content-Type" => "application/json", "Content-Length" => body.bytesize.to_s }, [body]]
  end

  get("/admin/*") { |rest| told("admin", rest) }
  get("/foo/bar") { told("bar") }
  get("/foo/:name") { |name| told("name", name) }
  get("/foo/:name/:other") { |name, other| told("names", name, other) }
  get("*.php") { |name| told("php", name) }
  get("*") { |rest| told("rest", rest) }
end

run Origin
