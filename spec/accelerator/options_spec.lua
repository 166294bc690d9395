-- Every option of Accelerator has an effect in a job of two processes, or is refused.
local accelhost = require "accelhost"
local options = require "spec.support.options"
local run = require "spec.support.run"

local function text_of(given)
  local parts = {}
  for name, value in pairs(given) do
    parts[#parts + 1] = ("%s = %s"):format(name, type(value) == "string" and ("%q"):format(value) or tostring(value))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Wrong values are found in this process, effects in a job of their own.
local function observe(given)
  accelhost.Accelerator(given)
  local result = run.host({"launch", "--num_processes", 2, "spec/distributed/cases/options.lua", text_of(given)})
  assert.equal(0, result.code, result.output)
  return result.stdout
end

describe("The options", function()
  local _ = accelhost.Accelerator
  options.walk("Accelerator", {
    observe = observe,
    values = {
      device_placement = false, split_batches = true, gradient_accumulation_steps = 2, even_batches = false,
      step_scheduler_with_optimizer = false, bucket_cap_mb = 0.01,
    },
    with = {step_scheduler_with_optimizer = {gradient_accumulation_steps = 2}, even_batches = {split_batches = true}},
    refused = {mixed_precision = "fp16"},
    inert = {cpu = "ranks have nothing but the CPU to run on"},
  })
end)
