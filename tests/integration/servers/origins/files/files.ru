# Files of a directory by Rack::Files, and by a Sinatra route that opens them. Usage: FILES=DIRECTORY puma files.ru
require "rack"
require "sinatra/base"

class Opened < Sinatra::Base
  set :environment, :production
  set :host_authorization, { permitted_hosts: [] } rescue nil
  get "/*" do |path|
    file = File.expand_path(path, ENV["FILES"])
    halt 404 unless file.start_with?(ENV["FILES"] + "/") && File.file?(file)
    send_file file
  end
end

run ENV["BY"] == "rack" ? Rack::Files.new(ENV["FILES"]) : Opened
