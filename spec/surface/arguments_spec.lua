-- Every public function is called with wrong types, wrong counts and unknown options. Its error names the function
-- and the argument, and is never an error from inside the library.
local dist = require("accelhost").distributed
local folder = require "spec.support.folder"
local surface = require "spec.support.surface"
local unpack = unpack

local entries = surface.entries()

local function attempt(entry, values, count)
  return pcall(function()
    local result = entry.call(unpack(values, 1, count))
    return result
  end)
end

local function show(values, count)
  local parts = {}
  for i = 1, count do parts[i] = tostring(values[i]):gsub("\n.*", "...") end
  return "(" .. table.concat(parts, ", ") .. ")"
end

local function expect(entry, what, values, count, ...)
  local fine, message = attempt(entry, values, count)
  local call = entry.title .. show(values, count)
  assert(not fine, call .. " was accepted")
  assert(not surface.is_raw(message), call .. ": " .. tostring(message))
  assert(message:find(what:gsub("_$", ""), 1, true), call .. " does not name the function: " .. message)
  for i = 1, select("#", ...) do
    if message:find((select(i, ...)), 1, true) then return end
  end
  error(call .. " does not name the argument: " .. message, 0)
end

local function samples(rows)
  local values = {}
  for i, row in ipairs(rows) do
    if row.required then values[i] = surface.sample(row.kind) end
  end
  return values
end

local function check_kinds(entry, rows, what)
  for i, row in ipairs(rows) do
    for _, wrong in ipairs(surface.wrong(row.kind)) do
      local values = samples(rows)
      values[i] = wrong
      local last = i
      for k = i + 1, #rows do
        if rows[k].required then last = k end
      end
      -- The last table with names is read as options.
      expect(entry, what, values, last, row.name, "unknown option 'junk'", "got the field 'junk'")
    end
  end
end

local function check_counts(entry, rows, what)
  local values, variadic = {}, false
  for i, row in ipairs(rows) do
    values[i] = surface.sample(row.kind)
    variadic = variadic or row.list
  end
  if not variadic then
    values[#rows + 1] = true
    expect(entry, what, values, #rows + 1, "at most")
  end
  if #rows > 0 then
    values = samples(rows)
    local last = 0
    for i, row in ipairs(rows) do last = row.required and i or last end
    values[last + 1] = {jnuk = 1}
    expect(entry, what, values, last + 1, "unknown option 'jnuk'", rows[last + 1] and rows[last + 1].name or "at most")
  end
  for i, row in ipairs(rows) do
    if row.required then
      values = samples(rows)
      values[i] = nil
      expect(entry, what, values, i, row.name)
    end
  end
end

describe("A wrong argument is named with its function by", function()
  local leave
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  for _, entry in ipairs(entries) do
    local rows, what = surface.rows(entry)
    if rows then
      it(entry.title, function()
        if dist.is_initialized() then dist.destroy_process_group() end -- an accelerator has made it
        check_kinds(entry, rows, what)
        check_counts(entry, rows, what)
      end)
    end
  end
end)

describe("Whatever the arguments, no error is raised inside the library for", function()
  local leave
  setup(function() leave = folder.enter() end)
  teardown(function()
    leave()
    local accelhost = require "accelhost" -- the calls changed these
    accelhost.autograd.set_detect_anomaly(false)
    accelhost.set_printoptions {profile = "default"}
  end)

  local sample = require("accelhost").ones(2)
  local calls = {{}, {"junk"}, {3}, {-1.5}, {{}}, {{1, "junk"}}, {{junk = 1}}, {print}, {true}, {sample, "junk"},
    {sample, sample, sample, sample}, {"junk", "junk", "junk"}, {3, 3, 3, 3}, {{sample}, {sample}}}
  for _, entry in ipairs(entries) do
    it(entry.title, function()
      for _, values in ipairs(calls) do
        local fine, result = attempt(entry, values, #values)
        assert(fine or not surface.is_raw(result), entry.title .. show(values, #values) .. ": " .. tostring(result))
        -- A hook for everything shall not stay for the following specs.
        if fine and type(result) == "table" and type(rawget(result, "remove")) == "function" then result:remove() end
      end
    end)
  end
end)
