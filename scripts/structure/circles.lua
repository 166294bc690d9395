-- Circles among the units of host/ (a unit is a .c file and the header of its name): units that call functions of each
-- other, and units that include headers of each other. A header without a .c file belongs to the units that include it.
--
-- Folders may not form a circle at all. Inside a folder a circle has to be explained: a header of one of its units
-- has a sentence "Circle: a, b: why" that names every unit of it.
local files = require "files"

local circles = {}

-- Tarjan's strongly connected components of more than one node; `edges[a][b]` is true when a uses b.
local function components(nodes, edges)
  local index, low, on, stack, count, found = {}, {}, {}, {}, 0, {}
  local function visit(v)
    count = count + 1
    index[v], low[v], on[v] = count, count, true
    stack[#stack + 1] = v
    for _, w in ipairs(nodes) do
      if edges[v] and edges[v][w] then
        if not index[w] then
          visit(w)
          low[v] = math.min(low[v], low[w])
        elseif on[w] then
          low[v] = math.min(low[v], index[w])
        end
      end
    end
    if low[v] ~= index[v] then return end
    local group = {}
    repeat
      local w = table.remove(stack)
      on[w] = nil
      table.insert(group, 1, w)
    until w == v
    table.sort(group)
    if #group > 1 then found[#found + 1] = group end
  end
  for _, v in ipairs(nodes) do
    if not index[v] then visit(v) end
  end
  return found
end

local function link(edges, from, to, name)
  if from == to then return end
  edges[from] = edges[from] or {}
  edges[from][to] = edges[from][to] or name
end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function folder_of(unit) return unit:match("^(.*)/") end

-- Return the unit that defines each public function, and the code of each unit.
local function units_of(list)
  local owner, code = {}, {}
  for _, file in ipairs(list) do
    if file.path:find("^host/.*/.*%.[ch]$") then
      local unit = file.path:gsub("%.[ch]$", "")
      local text = files.c_code(file.text):gsub("%f[%w_](%l+) +ah_[%w_]+", {struct = "", enum = "", union = ""})
      -- A header may declare functions of several files; it uses only those that its inline functions call.
      local uses = text
      if file.path:find("%.h$") then
        uses = ""
        for body in text:gmatch("%b{}") do uses = uses .. body end
      end
      code[unit] = (code[unit] or "") .. uses
      if file.path:find("%.c$") then
        for _, definition in ipairs(files.c_functions(text)) do
          if not definition.static then owner[definition.name] = unit end
        end
      end
    end
  end
  return owner, code
end

-- The units whose headers each unit includes, itself or by a header that belongs to no unit.
local function includes_of(list)
  local has_c, direct, edges = {}, {}, {}
  for _, file in ipairs(list) do
    local unit, kind = file.path:match("^host/(.*)%.([ch])$")
    if unit then
      has_c[unit] = has_c[unit] or kind == "c"
      direct[unit] = direct[unit] or {}
      for header in file.text:gmatch('#include "([^"]+)%.h"') do direct[unit][header] = true end
    end
  end
  local function add(from, header, seen)
    if seen[header] then return end
    seen[header] = true
    if has_c[header] then return link(edges, "host/" .. from, "host/" .. header, header .. ".h") end
    for below in pairs(direct[header] or {}) do add(from, below, seen) end
  end
  for unit, headers in pairs(direct) do
    local seen = {}
    for header in pairs(has_c[unit] and headers or {}) do add(unit, header, seen) end
  end
  return edges
end

-- The sentences "Circle: a, b: why" of headers.
local function explanations_of(list)
  local found = {}
  for _, file in ipairs(list) do
    local from, _, named = file.text:find("Circle: ([%w_,%s*]+):")
    if from and file.path:find("^host/.*%.h$") then
      local names = {}
      for name in named:gmatch("[%w_]+") do names[name] = true end
      local _, line = file.text:sub(1, from):gsub("\n", "")
      found[#found + 1] = {path = file.path, line = line + 1, names = names, used = {}}
    end
  end
  return found
end

local function explained(explanations, group)
  for _, explanation in ipairs(explanations) do
    local all = true
    for _, unit in ipairs(group) do all = all and explanation.names[unit:match("[^/]*$")] end
    if all then
      for _, unit in ipairs(group) do explanation.used[unit:match("[^/]*$")] = true end
      return true
    end
  end
  return false
end

--- Report circles of folders, and of units inside a folder that no header explains.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
function circles.check(list, report)
  local owner, code = units_of(list)
  local units, folders = {}, {}
  for unit, text in pairs(code) do
    for word in text:gmatch("%f[%w_]ah_[%w_]+") do
      local target = owner[word]
      if target then
        link(units, unit, target, word)
        link(folders, folder_of(unit), folder_of(target), unit .. " uses " .. word)
      end
    end
  end
  for _, group in ipairs(components(sorted_keys(folders), folders)) do
    local ties = {}
    for _, a in ipairs(group) do
      for _, b in ipairs(group) do
        if folders[a][b] then ties[#ties + 1] = folders[a][b] .. " of " .. b end
      end
    end
    report(group[1], 1, "folders in a circle: " .. table.concat(group, ", ") .. " (" .. table.concat(ties, "; ") .. ")")
  end
  local inside = {}
  for unit, targets in pairs(units) do
    for target, word in pairs(targets) do
      if folder_of(unit) == folder_of(target) then link(inside, unit, target, word) end
    end
  end
  local explanations = explanations_of(list)
  for what, edges in pairs {["calls"] = inside, ["includes"] = includes_of(list)} do
    for _, group in ipairs(components(sorted_keys(code), edges)) do
      if not explained(explanations, group) then
        local text = ("a circle of %s that no header explains: %s"):format(what, table.concat(group, ", "))
        report(group[1] .. ".c", 1, text)
      end
    end
  end
  for _, explanation in ipairs(explanations) do
    for name in pairs(explanation.names) do
      if not explanation.used[name] then report(explanation.path, explanation.line, name .. " is in no circle") end
    end
  end
end

return circles
