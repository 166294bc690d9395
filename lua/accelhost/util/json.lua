--- accelhost.json: JSON texts and Lua values.
---
---   local json = accelhost.json
---   local config = json.decode '{"lr": 0.001, "betas": [0.9, 0.999]}'              -- errors name line and column
---   print(config.lr, json.encode(config.betas))  --> 0.001  [0.9, 0.999]
---
--- Objects and arrays are tables, `json.null` represents null (it counts as true in an `if`), and numbers are Lua's: an
--- integer beyond 2^53 is rounded. A table with a first item is written as an array, any other as an object with its
--- keys sorted; `json.array {}` is an empty array.
local C = require "accelhost._C"

local json = {null = C.json.null}

--- The value of a JSON text.
--
--   accelhost.json.decode('{"sizes": [1, 2]}').sizes[2]  --> 2
---@return any
json.decode = C.json.decode

--- A value as JSON text, on one line unless `indent` sets the number of spaces per level.
--
--   accelhost.json.encode{lr = 0.1, sizes = {1, 2}}  --> {"lr": 0.1, "sizes": [1, 2]}
---@param value any tables without cycles, strings in UTF-8, finite numbers, booleans, json.null
---@param indent? integer 0 to 16, or {indent = 2}
---@return string
json.encode = C.json.encode

--- Mark a table as an array, so that it is written as [] when it is empty; returns it.
--
--   accelhost.json.encode(accelhost.json.array{})  --> []
---@param table table
---@return table
json.array = C.json.array

return json
