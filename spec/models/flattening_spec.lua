-- Rows that hold several texts one after the other, against each text alone.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local models, text = accelhost.models, accelhost.text

local texts = {{3, 4, 5, 6, 7, 8, 9}, {9, 10, 1}, {11}, {12, 13, 5, 6, 2}}
local common = {
  vocab_size = 19, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 12, head_dim = 4, attention_dropout = 0,
}
local gpt2 = {vocab_size = 19, n_positions = 12, n_embd = 16, n_layer = 2, n_head = 4, resid_pdrop = 0, embd_pdrop = 0,
  attn_pdrop = 0}
local cases = {
  {"grouped heads", "Llama"}, {"a sliding window", "Mistral", {sliding_window = 3}},
  {"bounded scores", "Gemma2", {sliding_window = 3, query_pre_attn_scalar = 4}}, {"parallel blocks", "GPTNeoX"},
  {"learnt positions", "GPT2"},
}

local function make(case)
  accelhost.manual_seed(4)
  if case[2] == "GPT2" then return models.GPT2LMHeadModel(gpt2):double() end
  local values = {}
  for _, from in ipairs {common, case[3] or {}} do
    for name, value in pairs(from) do values[name] = value end
  end
  if case[2] == "GPTNeoX" then values.rotary_pct, values.num_key_value_heads, values.head_dim = 0.5, nil, nil end
  return models[case[2] .. "ForCausalLM"](values):double()
end

local function features()
  local list = {}
  for i, ids in ipairs(texts) do list[i] = {input_ids = ids} end
  return list
end

local function numbers(rows) return accelhost.tensor(rows, {dtype = "int64"}) end

describe("A row of several texts", function()
  for _, case in ipairs(cases) do
    it("has each text's logits and the gradients of their mean loss, with " .. case[1], function()
      local model = make(case)
      local batch = text.DataCollatorWithFlattening()(features())
      local out = model(batch)
      out.loss:backward()
      local gradients = {}
      for name, parameter in model:named_parameters() do gradients[name] = check.flat(parameter.grad) end
      model:zero_grad()
      local at, sum, count = 0, 0, 0
      for _, ids in ipairs(texts) do
        local alone = model {input_ids = numbers {ids}, labels = #ids > 1 and numbers {ids} or nil}
        check.near(check.flat(alone.logits), out.logits:narrow(1, at, #ids), 1e-10)
        at = at + #ids
        if #ids > 1 then
          sum, count = sum + alone.loss * (#ids - 1), count + #ids - 1
        end
      end
      local mean = sum / count
      check.near(mean:item(), out.loss:item(), 1e-10)
      mean:backward()
      for name, parameter in model:named_parameters() do check.near(gradients[name], parameter.grad, 1e-10, name) end
    end)
  end

  it("may be one of several, and shows no weights between texts", function()
    local model = make(cases[1]):eval()
    local rows = numbers {{3, 4, 5, 6, 7}, {9, 10, 11, 1, 2}}
    local positions = numbers {{0, 1, 0, 1, 2}, {0, 1, 2, 3, 4}}
    local out = model({input_ids = rows, position_ids = positions, output_attentions = true})
    for _, place in ipairs {{0, 0, 2}, {0, 2, 3}, {1, 0, 5}} do
      local ids = rows:narrow(0, place[1], 1):narrow(1, place[2], place[3])
      check.near(check.flat(model(ids).logits[0]), out.logits[place[1]]:narrow(0, place[2], place[3]), 1e-10)
    end
    assert.equal(0, out.attentions[1][0]:narrow(1, 2, 3):narrow(2, 0, 2):abs():sum():item())
    local plain = model {input_ids = rows, position_ids = positions}
    check.near(check.flat(out.logits), plain.logits, 1e-10)
  end)

  for _, positions in ipairs {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 0, 1, 2}} do
    it("has the losses of the plain step in a captured one, at positions " .. table.concat(positions, ""), function()
      local batch = {input_ids = numbers {{3, 4, 5, 6, 7, 8}}, labels = numbers {{3, 4, 5, -100, 7, 8}},
        position_ids = numbers {positions}}
      local losses = {}
      for way = 1, 2 do
        local accelerator, model = accelhost.Accelerator(), make(cases[1])
        local optimizer = accelhost.optim.SGD(model:parameters(), {lr = 0.1})
        model, optimizer = accelerator:prepare(model, optimizer)
        local function step(ids, labels, places)
          local loss = model({input_ids = ids, labels = labels, position_ids = places}).loss
          accelerator:backward(loss)
          optimizer:step()
          optimizer:zero_grad()
          return loss
        end
        local captured = way == 2 and accelerator:compile(step) or step
        losses[way] = {}
        for i = 1, 5 do losses[way][i] = captured(batch.input_ids, batch.labels, batch.position_ids):item() end
        if way == 2 then assert.matches("captured", tostring(captured)) end
      end
      check.near(losses[1], accelhost.tensor(losses[2], {dtype = "float64"}), 1e-10)
    end)
  end

  it("may be longer than the model's positions", function()
    local batch = text.DataCollatorWithFlattening()(features())
    assert.is_true(batch.input_ids:size(1) > gpt2.n_positions)
    check.raises("16 tokens are more than the model's 12 positions", function()
      make(cases[5])(batch.input_ids)
    end)
  end)

  it("has the gradients of layers that are computed again", function()
    local plain, again = make(cases[2]), make(cases[2])
    again:gradient_checkpointing_enable()
    for _, model in ipairs {plain, again} do
      model:train()(text.DataCollatorWithFlattening()(features())).loss:backward()
    end
    for name, parameter in plain:named_parameters() do
      check.near(check.flat(parameter.grad), again:get_parameter(name).grad, 1e-12, name)
    end
  end)
end)
