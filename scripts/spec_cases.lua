--- Print a table of spec/cases as JSON, for Python scripts: accelhost scripts/spec_cases.lua optimizers (from the
--- tree's root). `drawn` are the values of each option among which scripts/compare draws, in the signature's order.
package.path = "./?.lua;" .. package.path
local accelhost = require "accelhost"
local json = accelhost.json
local signatures = require("accelhost.util.arguments").signatures

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

-- Functions become {"formula": text}.
local function plain(values, formulas)
  local list = {}
  for i, value in ipairs(values) do list[i] = formulas[value] and {formula = formulas[value]} or value end
  return list
end

function tables.schedulers()
  local list, schedulers = {}, require "spec.cases.schedulers"
  for i, row in ipairs(schedulers) do
    local required, drawn = {}, {}
    for k, pair in ipairs(row.required) do required[k] = plain(pair[2], schedulers.formulas) end
    assert(accelhost.optim[row.space or "lr_scheduler"][row.name]) -- loads its signature
    for _, option in ipairs(signatures[row.name]) do
      local values = row.options[option.name]
      if values then drawn[#drawn + 1] = {option.name, plain(values, schedulers.formulas)} end
    end
    list[i] = {name = row.name, space = row.space, part = row.part, required = required, drawn = drawn, cases = {}}
    for k, case in ipairs(row.cases or {}) do
      list[i].cases[k] = {options = case[1], momentum = case.momentum, metrics = case.metrics}
    end
  end
  return list
end

-- Cases by subject, of which callable and inputs are texts.
function tables.layer_cases()
  local list = {}
  for subject, rows in pairs(require "spec.cases.layers") do
    for _, row in ipairs(rows) do
      for _, case in ipairs(row.cases or {}) do
        list[subject] = list[subject] or {}
        table.insert(list[subject], {call = ("nn.%s(%s)%s"):format(row.name, case[1], case.eval and ".eval()" or ""),
          inputs = {unpack(case, 2)}, fields = case.first_only and {first_only = true}})
      end
    end
  end
  return list
end

-- The values of options among which scripts/compare draws, in the signature's order: {{option, {value, ...}}, ...}.
local function drawn_values(name, values)
  local list = {}
  assert(accelhost.nn[name]) -- loads its signature
  for _, option in ipairs(signatures[name]) do
    if values[option.name] then list[#list + 1] = {option.name, values[option.name]} end
  end
  return list
end

function tables.activations()
  local list = {}
  for i, row in ipairs(require "spec.cases.activations") do
    list[i] = {name = row[1], fn = row.fn, required = row.required == true,
      drawn = drawn_values(row[1], row.values or {})}
  end
  return list
end

function tables.losses()
  local list = {}
  for _, row in ipairs(require "spec.cases.losses") do
    if row.fn then
      local values = {reduction = {"mean", "sum", "none"}}
      for option, given in pairs(row.values or {}) do values[option] = given end
      list[#list + 1] = {name = row[1], fn = row.fn, like = row.like or row.fn, drawn = drawn_values(row[1], values)}
    end
  end
  return list
end

-- {shape, dtype, largest value} of each input; nil where one is no tensor.
local function described(inputs)
  local list = {}
  for i, input in ipairs(inputs) do
    if not accelhost.is_tensor(input) then return nil end
    list[i] = {input:shape(), input.dtype, input:max():item()}
  end
  return list
end

-- Layers by name: whether they have a dtype, and, for those that are drawn, arguments, options and inputs.
function tables.layers()
  local list = {}
  for name, row in pairs(require("spec.cases.layers").by_name) do
    local typed = false
    assert(accelhost.nn[name]) -- loads its signature
    for _, option in ipairs(signatures[name] or {}) do typed = typed or option.name == "dtype" end
    list[name] = {typed = typed}
    if row.drawn ~= false and not row.make then
      list[name].arguments, list[name].inputs = row.arguments, described(row.inputs)
      list[name].options = row.train or {}
    end
  end
  return list
end

print(json.encode(tables[arg[1]]()))
