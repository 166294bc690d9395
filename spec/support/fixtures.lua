--- Reads fixtures that are split into files, one for each subject: spec/fixtures/FOLDER/SUBJECT.lua, all of the same
--- kind, an array of cases or a table of cases by name.
local lfs = require "lfs"

local fixtures = {}

--- The subjects of a folder, sorted.
---@param folder string below spec/fixtures
---@return string[]
function fixtures.subjects(folder)
  local names = {}
  for file in lfs.dir("spec/fixtures/" .. folder) do
    names[#names + 1] = file:match "^(.*)%.lua$"
  end
  table.sort(names)
  return names
end

--- The contents of each file of a folder, by subject in their order.
---@param folder string below spec/fixtures
---@return table[]
function fixtures.files(folder)
  local list = {}
  for i, subject in ipairs(fixtures.subjects(folder)) do
    list[i] = dofile(("spec/fixtures/%s/%s.lua"):format(folder, subject))
  end
  return list
end

--- The cases of a folder as one table, subject by subject.
---@param folder string below spec/fixtures
---@return table
function fixtures.read(folder)
  local all = {}
  for _, cases in ipairs(fixtures.files(folder)) do
    for _, case in ipairs(cases) do all[#all + 1] = case end
    for name, case in pairs(cases) do
      if type(name) == "string" then
        assert(all[name] == nil, ("spec/fixtures/%s: '%s' is in two files"):format(folder, name))
        all[name] = case
      end
    end
  end
  return all
end

return fixtures
