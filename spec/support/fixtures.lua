--- Reads fixtures: spec/fixtures/NAME.json, written by scripts/fixtures/fixture.py.
---
--- JSON has no NaN, no infinities and only string keys: the strings "NaN", "Infinity" and "-Infinity" become numbers,
--- keys of digits too, and null becomes nil.
local lfs = require "lfs"
local json = require("accelhost").json
local read = require("spec.support.files").read

local fixtures = {}

local numbers = {NaN = 0 / 0, Infinity = math.huge, ["-Infinity"] = -math.huge}

local function restore(value)
  if value == json.null then return nil end
  if type(value) ~= "table" then return numbers[value] or value end
  local restored = {}
  for key, item in pairs(value) do
    restored[type(key) == "string" and key:find "^%d+$" and tonumber(key) or key] = restore(item)
  end
  return restored
end

--- The fixture of this name, without the name of its script.
---@param name string below spec/fixtures, such as "optim" or "ops/reduce"
---@return table
function fixtures.load(name)
  local fixture = restore(json.decode(read("spec/fixtures/" .. name .. ".json")))
  fixture.made_by = nil
  return fixture
end

--- The names of a folder's fixtures, sorted.
---@param folder string below spec/fixtures
---@return string[]
function fixtures.subjects(folder)
  local names = {}
  for file in lfs.dir("spec/fixtures/" .. folder) do
    names[#names + 1] = file:match "^(.*)%.json$"
  end
  table.sort(names)
  return names
end

--- The fixtures of a folder, by name in their order.
---@param folder string below spec/fixtures
---@return table[]
function fixtures.files(folder)
  local list = {}
  for i, subject in ipairs(fixtures.subjects(folder)) do
    list[i] = fixtures.load(folder .. "/" .. subject)
  end
  return list
end

--- The cases of a folder as one table, subject by subject.
---@param folder string below spec/fixtures
---@return table
function fixtures.read(folder)
  local all = {}
  for _, fixture in ipairs(fixtures.files(folder)) do
    for _, case in ipairs(fixture.cases or {}) do all[#all + 1] = case end
    for name, case in pairs(fixture) do
      if name ~= "cases" then
        assert(all[name] == nil, ("spec/fixtures/%s: '%s' is in two files"):format(folder, name))
        all[name] = case
      end
    end
  end
  return all
end

return fixtures
