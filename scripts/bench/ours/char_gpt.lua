--- Training steps of the model of examples/char_gpt.lua on ready batches. usage: char_gpt.lua bench STEPS BLOCKS
--
-- peers/char_gpt.py documents the measurement and does the same.
local accelhost = require "accelhost"
local system = require("accelhost._C").system
local models, optim = accelhost.models, accelhost.optim

local BATCH, BLOCK = 16, 128
local steps, blocks = tonumber(arg[2]), tonumber(arg[3])
accelhost.manual_seed(1)
local model = models.GPT2LMHeadModel {vocab_size = 65, n_positions = BLOCK, n_embd = 128, n_layer = 4, n_head = 4,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
local decayed, others = {}, {}
for _, parameter in ipairs(model:parameters()) do
  table.insert(parameter:dim() > 1 and decayed or others, parameter)
end
local optimizer = optim.AdamW({{params = decayed, weight_decay = 0.1}, {params = others, weight_decay = 0}},
  {lr = 4e-3, betas = {0.9, 0.99}})
local batches = {}
for i = 1, 8 do batches[i] = accelhost.randint(0, 65, {BATCH, BLOCK}) end

local function step(ids)
  model{input_ids = ids, labels = ids}.loss:backward()
  accelhost.nn.utils.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  optimizer:zero_grad()
end

local times, processor = {}, {}
for block = 0, blocks do
  local begin, used = system.now(), os.clock()
  for i = 1, steps do step(batches[i % 8 + 1]) end
  times[block], processor[block] = (system.now() - begin) / steps, (os.clock() - used) / steps
end
table.sort(times)
table.sort(processor)
local middle = math.floor(blocks / 2) + 1
print("tokens_per_s", BATCH * BLOCK / times[middle])
print("step_cpu_ms", 1e3 * processor[middle])
