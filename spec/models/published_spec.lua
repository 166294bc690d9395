-- Folders with the configuration files of published models, as they are, against transformers.
local accelhost = require "accelhost"
local arguments = require "accelhost.util.arguments"
local check = require "spec.support.check"
local files = require "spec.support.files"
local temporary = require "spec.support.folder"
local tensors = require "spec.support.tensors"
local models = accelhost.models

local fixture = require("spec.support.fixtures").load "published"
local ids = tensors.long(fixture.ids)

-- Return the elements of a weight, as numbers() of scripts/fixtures/published has them.
local function numbers(name, index, shape)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local position = accelhost.arange(count)
  local values = ((position * position + 17 * position + 101 * index) * 7919 % 100003):double() / 100003
  if #shape > 1 then
    values = (values - 0.5) * 0.5
  elseif name:find "bias$" or name:find "running_mean$" then
    values = (values - 0.5) * 0.2
  else
    values = values + 0.5
  end
  return values:view(shape)
end

-- Write a case's files into the current folder.
local function write(case)
  for name, content in pairs(case.files) do files.write(name, content) end
  local weights = {}
  for i, row in ipairs(case.weights) do weights[row[1]] = numbers(row[1], i - 1, row[2]) end
  accelhost.save(weights, "model.safetensors")
end

local function output(head, model, dtype)
  if head == "ImageClassification" then
    local shape = {unpack(fixture.pixels)}
    if model.config.model_type == "vit" then shape[3], shape[4] = model.config.image_size, model.config.image_size end
    local count = shape[1] * shape[2] * shape[3] * shape[4]
    return model(accelhost.arange(count, {dtype = "float64"}):sin():view(shape):to(dtype)).logits
  end
  if head == "Seq2SeqLM" then return model {input_ids = ids, decoder_input_ids = ids:narrow(1, 0, 7)}.logits end
  local found = model {input_ids = ids}
  return head == "Model" and found.last_hidden_state or found.logits
end

describe("The files of a published model are read as they are, with transformers' numbers:", function()
  local leave
  before_each(function() leave = temporary.enter() end)
  after_each(function() leave() end)

  for _, name in ipairs(arguments.sorted_keys(fixture.cases)) do
    local case = fixture.cases[name]
    it(name, function()
      write(case)
      local Auto = models[case.head == "Model" and "AutoModel" or "AutoModelFor" .. case.head]
      for dtype, tolerance in pairs {float64 = 1e-10, float32 = 1e-5} do
        local model, report = Auto.from_pretrained(".", {dtype = dtype, output_loading_info = true})
        assert.same({missing_keys = {}, unexpected_keys = {}, mismatched_keys = {}}, report)
        local found = accelhost.no_grad(output, case.head, model, dtype)
        assert.same(case.shape, found:size())
        check.near(case.first, found:reshape(-1):narrow(0, 0, #case.first), tolerance, dtype)
        if dtype == "float64" then check.near(case.sum, tensors.weighed(found), 1e-8, "sum") end
        if case.tokens then
          local options = {input_ids = ids, max_new_tokens = fixture.new, do_sample = false}
          assert.same(case.tokens, model:generate(options):tolist())
        end
      end
    end)
  end
end)
