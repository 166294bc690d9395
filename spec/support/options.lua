--- Specs that walk every option of a function and show that it has an effect or is refused. The options are those of
--- its signature, so that none can be forgotten.
--
--   options.walk("StepLR", {
--     observe = function(given) ... return "the outcome, as text" end,
--     base = {step_size = 2},                      -- options of every call
--     values = {step_size = 3, gamma = 0.5},       -- another value of each option
--     with = {gamma = {step_size = 1}},            -- options that an option requires
--     refused = {mode = "low"},                    -- options with one value so far, and another one
--     inert = {foreach = "the reason"},            -- options that rightly change nothing
--     ignore = {"optimizer"},                      -- parameters that are no options
--   })
local arguments = require "accelhost.util.arguments"
local busted = require "busted"

local options = {}

local function merged(...)
  local result = {}
  for i = 1, select("#", ...) do
    for name, value in pairs((select(i, ...)) or {}) do result[name] = value end
  end
  return result
end

local function message_of(plan, given)
  local fine, message = pcall(plan.observe, given)
  assert(not fine, "it was accepted")
  return tostring(message)
end

local function walk_one(what, plan, row, base)
  local name = row.name
  if plan.inert and plan.inert[name] then return end
  if plan.refused and plan.refused[name] ~= nil then
    busted.it(("of %s refuses another %s than there is"):format(what, name), function()
      local message = message_of(plan, merged(base, {[name] = plan.refused[name]}))
      assert(message:find(what .. ": ", 1, true) and message:find(name, 1, true), message)
    end)
    return
  end
  busted.it(("of %s heeds %s"):format(what, name), function()
    assert(plan.values[name] ~= nil, "the spec names no other value for it")
    local around = merged(base, plan.with and plan.with[name])
    local seen = plan.observe(merged(around, {[name] = plan.values[name]}))
    if seen == plan.observe(around) then error("with and without it: " .. seen, 0) end
  end)
end

--- Make the specs of one function.
---@param what string its name in the messages, and of its signature
---@param plan table
function options.walk(what, plan)
  local rows, base, ignored = arguments.signatures[what], plan.base or {}, {}
  assert(rows, what .. " has no signature")
  for _, name in ipairs(plan.ignore or {}) do ignored[name] = true end
  for _, row in ipairs(rows) do
    if not ignored[row.name] then
      walk_one(what, plan, row, base)
      if row.kind and row.kind.name ~= "any" then
        busted.it(("of %s refuses a coroutine as %s"):format(what, row.name), function()
          local message = message_of(plan, merged(base, {[row.name] = coroutine.create(print)}))
          assert(message:find(what .. ": " .. row.name .. ": ", 1, true), message)
        end)
      end
    end
  end
  busted.it(("of %s refuses unknown options"):format(what), function()
    local message = message_of(plan, merged(base, {surprise = 1}))
    assert(message:find(what .. ": unknown option 'surprise'", 1, true), message)
  end)
end

return options
