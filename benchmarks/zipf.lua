-- Keys in Zipf order with exponent 1: the n-th is asked for 1/n times as often as the first.
-- Argument: how many keys there are. With 1 the load does the same work and asks for one key alone.
local prepared, drawn, turn = {}, {}, 0
local DRAWS = 200000

function init(arguments)
    local keys, total, sums = tonumber(arguments[1]), 0, {}
    for key = 1, keys do
        prepared[key] = wrk.format("GET", "/key/" .. key)
        total = total + 1 / key
        sums[key] = total
    end
    math.randomseed(1)
    for draw = 1, DRAWS do
        local wanted, low, high = math.random() * total, 1, keys
        while low < high do
            local middle = math.floor((low + high) / 2)
            if sums[middle] < wanted then low = middle + 1 else high = middle end
        end
        drawn[draw] = low
    end
end

function request()
    turn = turn % DRAWS + 1
    return prepared[drawn[turn]]
end
