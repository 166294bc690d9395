-- A token file through the loaders of a job's ranks.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local data = accelhost.data

local accelerator = accelhost.Accelerator()
local path = accelhost.utils.broadcast_object_list({os.tmpname()})[1]
accelerator:main_process_first(function()
  if accelerator.is_main_process then data.write_tokens(path, accelhost.arange(64)) end
end)
accelerator:wait_for_everyone()
local set = data.TokenFile(path, {block_size = 3})

local function loader() return accelerator:prepare(data.DataLoader(set, {batch_size = 2, shuffle = true, seed = 3})) end

local function pass(from)
  local firsts = {}
  for batch in from do
    local all = accelerator:gather_for_metrics(batch.input_ids:select(1, 0))
    for _, first in ipairs(all:tolist()) do firsts[#firsts + 1] = first end
  end
  return firsts
end

local whole = pass(loader())
checks.it("yields each block to one rank", function()
  local sorted, wanted = {unpack(whole)}, {}
  for i = 1, 21 do wanted[i] = 3 * (i - 1) end
  table.sort(sorted)
  checks.same(wanted, sorted)
end)

checks.it("resumes at its position", function()
  local first, seen, state = loader(), {}, nil
  for batch in first do
    for _, place in ipairs(accelerator:gather(batch.input_ids:select(1, 0)):tolist()) do seen[#seen + 1] = place end
    state = first:state_dict()
    if state then break end
  end
  local second = loader()
  second:load_state_dict(state)
  for _, place in ipairs(pass(second)) do seen[#seen + 1] = place end
  checks.same(whole, seen)
end)

accelerator:wait_for_everyone()
if accelerator.is_main_process then os.remove(path) end
checks.finish()
