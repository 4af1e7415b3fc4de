-- Each request names a key that none before it named: /key/<first>, /key/<first + 1>, ...
-- Argument: the first key.
local next_key

function init(arguments)
    next_key = tonumber(arguments[1])
end

function request()
    local path = "/key/" .. next_key
    next_key = next_key + 1
    return wrk.format("GET", path)
end
