-- A GPT-2 that learns the characters of a sonnet, by the pieces of examples/char_gpt.lua, against PyTorch's losses.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local data, models, optim, text = accelhost.data, accelhost.models, accelhost.optim, accelhost.text

local fixture = require("spec.support.fixtures").load "char_gpt"
local tokenizer = text.character_tokenizer(fixture.text)

local path = os.tmpname()
local count = data.write_tokens(path, tokenizer:encode(fixture.text))
local cut = math.floor(0.9 * count)

local function new_model()
  local config = {vocab_size = #tokenizer, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
  for name, value in pairs(fixture.config) do config[name] = value end
  local model = models.GPT2LMHeadModel(config):to "float64"
  local names, parameters = {}, {}
  for name, parameter in model:named_parameters() do names[#names + 1], parameters[name] = name, parameter end
  table.sort(names)
  accelhost.manual_seed(4)
  accelhost.no_grad(function()
    for _, name in ipairs(names) do
      local parameter = parameters[name]
      if parameter:dim() > 1 then
        parameter:copy_(accelhost.randn(parameter:shape(), {dtype = "float64"}) * 0.1)
      else
        parameter:fill_(name:find "ln_.*weight" and 1 or 0)
      end
    end
  end)
  return model
end

local function train(model)
  local accelerator = accelhost.Accelerator()
  local decayed, others = {}, {}
  for _, parameter in ipairs(model:parameters()) do
    table.insert(parameter:dim() > 1 and decayed or others, parameter)
  end
  local optimizer = optim.AdamW({{params = decayed, weight_decay = fixture.decay}, {params = others, weight_decay = 0}},
    {lr = fixture.rate, betas = {0.9, 0.99}})
  local schedule = optim.get_cosine_with_min_lr_schedule_with_warmup(optimizer,
    {num_warmup_steps = fixture.warmup, num_training_steps = fixture.steps, min_lr_rate = 0.1})
  local set = data.TokenFile(path, {block_size = fixture.block, stride = 1, count = cut, vocab_size = #tokenizer})
  local loader = data.DataLoader(set, {batch_size = fixture.batch, sampler = fixture.starts})
  model, optimizer, loader, schedule = accelerator:prepare(model, optimizer, loader, schedule)
  local losses, norms = {}, {}
  for batch in loader do
    local loss = model(batch).loss
    accelerator:backward(loss)
    norms[#norms + 1] = accelerator:clip_grad_norm_(model:parameters(), 1):item()
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    losses[#losses + 1] = loss:item()
  end
  return losses, norms
end

local function validate(model)
  local set = data.TokenFile(path, {block_size = fixture.block, first = cut})
  local indices = {}
  for i = 1, #set do indices[i] = i - 1 end
  model:eval()
  return accelhost.no_grad(model, set:rows(indices)).loss:item()
end

describe("a character GPT in float64", function()
  teardown(function() os.remove(path) end)

  for _, way in ipairs {"without checkpointing", "with its layers computed again"} do
    it("has PyTorch's losses, norms of gradients and validation loss for 50 steps, " .. way, function()
      local model = new_model()
      if way ~= "without checkpointing" then model:gradient_checkpointing_enable() end
      local losses, norms = train(model)
      check.near(fixture.losses, losses, 1e-9, "losses")
      check.near(fixture.norms, norms, 1e-9, "norms")
      check.near(fixture.validation, validate(model), 1e-9, "validation")
      assert.is_true(losses[50] < 0.7 * losses[1])
    end)
  end
end)
