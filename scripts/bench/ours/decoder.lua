--- A decoder of the shape of SmolLM2-135M with random weights: a training step, the reading of a prompt, and written
--- tokens. usage: decoder.lua train BLOCKS | tune BLOCKS DTYPE full|lora | write BLOCKS [DTYPE [SHAPE]]
--
-- peers/decoder.py documents the measurement and does the same. DTYPE may be int8 or nf4: the layers' weights are
-- quantised, the rest is bfloat16. SHAPE 0.5b is that of Qwen2-0.5B.
local accelhost = require "accelhost"
local models, peft = accelhost.models, accelhost.peft
local now = require("accelhost._C").system.now
local timing = require "timing"
local median = timing.median

local TOKENS, NEW = 128, 32
local what, blocks, dtype = arg[1], tonumber(arg[2]), arg[3] or "float32"
local shapes = {
  ["135m"] = {vocab_size = 49152, hidden_size = 576, intermediate_size = 1536, num_hidden_layers = 30,
    num_attention_heads = 9, num_key_value_heads = 3},
  ["0.5b"] = {vocab_size = 151936, hidden_size = 896, intermediate_size = 4864, num_hidden_layers = 24,
    num_attention_heads = 14, num_key_value_heads = 2},
}
local config = shapes[what == "write" and arg[4] or "135m"]
config.tie_word_embeddings, config.max_position_embeddings = true, 8192
config.rms_norm_eps, config.rope_theta = 1e-5, 100000
accelhost.manual_seed(1)
local model = models.LlamaForCausalLM(config)
local ids = accelhost.randint(0, config.vocab_size, {1, TOKENS})

local function train()
  local forward, both = {}, {}
  for block = 0, blocks do
    local begin = os.clock()
    local loss = model{input_ids = ids, labels = ids}.loss
    local middle = os.clock()
    loss:backward()
    local finish = os.clock()
    model:zero_grad()
    if block > 0 then forward[block], both[block] = middle - begin, finish - begin end
  end
  print("forward_ms", 1e3 * median(forward))
  print("step_ms", 1e3 * median(both))
end

local function tune(kind)
  model:to(dtype)
  if kind == "lora" then
    model = peft.get_peft_model(model, peft.LoraConfig {r = 16, lora_alpha = 32, target_modules = "all-linear"})
  end
  model:train()
  local trained = {}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.requires_grad then trained[#trained + 1] = parameter end
  end
  local optimizer = accelhost.optim.AdamW(trained, {lr = 1e-4})
  timing.steps(blocks, function()
    model{input_ids = ids, labels = ids}.loss:backward()
    optimizer:step()
    optimizer:zero_grad()
  end)
end

-- The rate at which a thread reads memory, in GB/s: a sum of 512 MiB.
local function memory_rate()
  local numbers, best = accelhost.ones(2 ^ 27), math.huge
  for _ = 1, 3 do
    local begin = os.clock()
    numbers:sum()
    best = math.min(best, os.clock() - begin)
  end
  return 4 * 2 ^ 27 / best / 1e9
end

local quantised = {
  int8 = {load_in_8bit = true},
  nf4 = {load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_compute_dtype = "bfloat16"},
}

-- The model with quantised weights, by way of a folder.
local function quantise()
  local folder = os.tmpname()
  os.remove(folder)
  model:bfloat16():save_pretrained(folder)
  model = models.LlamaForCausalLM.from_pretrained(folder,
    {quantization_config = models.BitsAndBytesConfig(quantised[dtype])})
  os.execute("rm -r " .. folder)
end

local function write()
  if quantised[dtype] then quantise() else model:to(dtype):eval() end
  local bytes = model:get_memory_footprint()
  local reading, writing, elapsed = {}, {}, {}
  for block = 0, blocks do
    local begin, first, first_at = os.clock(), nil, nil
    model:generate(ids, {
      max_new_tokens = NEW + 1, min_new_tokens = NEW + 1,
      on_token = function() first, first_at = first or os.clock(), first_at or now() end,
    })
    if block > 0 then
      reading[block], writing[block], elapsed[block] = first - begin, (os.clock() - first) / NEW,
        (now() - first_at) / NEW
    end
  end
  print("prompt_ms", 1e3 * median(reading))
  print("token_ms", 1e3 * median(writing))
  print("token_elapsed_ms", 1e3 * median(elapsed))
  print("memory_gb_s", memory_rate())
  print("token_gb_s", bytes / median(writing) / 1e9)
end

if what == "train" then train() elseif what == "tune" then tune(arg[4]) else write() end
