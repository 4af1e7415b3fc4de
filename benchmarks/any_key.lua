-- Each request names one of the keys /key/0, /key/1, ..., drawn at random.
-- Argument: how many there are.
local keys

function init(arguments)
    keys = tonumber(arguments[1])
end

function request()
    return wrk.format("GET", "/key/" .. math.random(0, keys - 1))
end
