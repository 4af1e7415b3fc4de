-- Tells what Apache makes of a target: its path, where it leads, and the query.
local function hex(text)
    return ((text or ""):gsub(".", function(octet) return ("%02x"):format(octet:byte()) end))
end

local function decoded(text)
    return ((text or ""):gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

function tell(request)
    local place = request.subprocess_env["PLACE"] or ""
    request.content_type = "text/plain"
    request:write(place .. "\n" .. hex(request.uri) .. "\n" .. hex(request.filename) .. "\n" .. hex(request.path_info)
        .. "\n" .. hex(decoded(request.args)))
    return apache2.OK
end
