-- A Lua plugin for Traffic Server: one spelling for the octets of a path. Its parameters are two sets of octets, which
-- are decoded and encoded, of two hexadecimal digits each. Unreserved octets are decoded, and those that may stand bare
-- nowhere are encoded (RFC 3986).
local forms = {}

local function set(octets, form)
    for digits in octets:gmatch("%x%x") do
        forms[tonumber(digits, 16)] = form
    end
end

function __init__(parameters)
    for octet = 0, 255 do
        local character = string.char(octet)
        if character:match("[A-Za-z0-9._~-]") then
            forms[octet] = "decode"
        elseif not character:match("[]!#$&'()*+,/:;=?@[]") then
            forms[octet] = "encode"
        end
    end
    set(parameters[1], "decode")
    set(parameters[2], "encode")
    return 0
end

function do_remap()
    local path, parameters = ts.client_request.get_uri(), ts.client_request.get_uri_params()
    if parameters and parameters ~= "" then -- what follows the first ";" of the last segment
        path = path .. ";" .. parameters
        ts.client_request.set_uri_params("")
    end
    local spelled, position = {}, 1
    while position <= #path do
        local digits = path:match("^%%(%x%x)", position)
        local octet = digits and tonumber(digits, 16) or path:byte(position)
        local form = forms[octet]
        if form == "decode" or (form == nil and not digits) then
            spelled[#spelled + 1] = string.char(octet)
        else
            spelled[#spelled + 1] = ("%%%02X"):format(octet)
        end
        position = position + (digits and 3 or 1)
    end
    ts.client_request.set_uri(table.concat(spelled))
    return 0
end
