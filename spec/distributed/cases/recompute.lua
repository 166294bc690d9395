-- Models that compute their layers again in backward, prepared and wrapped by DistributedDataParallel, in a window of
-- two batches.
local accelhost = require "accelhost"
local checks = require "spec.support.checks"
local models, optim, dist = accelhost.models, accelhost.optim, accelhost.distributed

local function new_model(forgets)
  accelhost.manual_seed(1)
  local model = models.GPT2LMHeadModel {vocab_size = 20, n_positions = 8, n_embd = 8, n_layer = 3, n_head = 2}
  if forgets then model:gradient_checkpointing_enable() end
  return model
end

local function batch(step, rank)
  local generator = accelhost.Generator(10 * step + rank)
  local ids = accelhost.randint(0, 20, {2, 8}, {generator = generator, device = "cpu"})
  ids = ids:to(accelhost.get_default_device())
  return {input_ids = ids, labels = ids}
end

local function weights(model)
  local all = {}
  for i, parameter in ipairs(model:parameters()) do all[i] = parameter:detach():reshape(-1) end
  return accelhost.cat(all)
end

local function by_accelerator(forgets)
  local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 2}
  local model = new_model(forgets)
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  model, optimizer = accelerator:prepare(model, optimizer)
  accelhost.manual_seed(5 + accelerator.process_index)
  for step = 1, 4 do
    accelerator:accumulate(model, function()
      accelerator:backward(model(batch(step, accelerator.process_index)).loss)
      optimizer:step()
      optimizer:zero_grad()
    end)
  end
  local found = weights(model)
  accelerator:free_memory()
  return found
end

local function by_ddp(forgets)
  local model = new_model(forgets)
  local wrapped = dist.DistributedDataParallel(model)
  accelhost.manual_seed(5 + dist.get_rank())
  wrapped(batch(1, dist.get_rank())).loss:backward()
  return model.transformer.h[1].attn.c_attn.weight.grad:clone()
end

checks.it("steps to the same bits when a prepared model computes its layers again", function()
  assert(by_accelerator(true):equal(by_accelerator(false)))
end)

dist.init_process_group {timeout = 50}
checks.it("averages to the same bits when a wrapped model computes its layers again", function()
  assert(by_ddp(true):equal(by_ddp(false)))
end)

checks.finish()
