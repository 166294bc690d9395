--- Print a table of spec/cases as JSON, for Python scripts: accelhost scripts/spec_cases.lua optimizers (from the tree's
--- root). `drawn` are the values of each option among which scripts/compare draws, in the order of the signature.
package.path = "./?.lua;" .. package.path
local json = require("accelhost").json
local signatures = require("accelhost.util.arguments").signatures
local accelhost = require "accelhost"

local tables = {}

function tables.optimizers()
  local list = {}
  for i, row in ipairs(require "spec.cases.optimizers") do
    local drawn = {}
    assert(accelhost.optim[row.name]) -- loads its signature
    for _, option in ipairs(signatures[row.name]) do
      local values = row.options[option.name]
      if values and #values > 0 then drawn[#drawn + 1] = {option.name, values} end
    end
    list[i] = {name = row.name, own = row.own, closure = row.closure, matrix = row.matrix, cases = row.cases,
      group = row.group, drawn = drawn}
  end
  return list
end

print(json.encode(tables[arg[1]]()))
