--- Real data sets for specs: $ACCELHOST_DATA or data/. A spec that needs one is skipped where it is absent:
--
--   local datasets = require "spec.support.datasets"
--   datasets.it("reads all 60,000 images", "mnist", function(dir) ... end)
local datasets = {}

local roots = {os.getenv("ACCELHOST_DATA") or false, "data"}

local marks = {
  mnist = {"train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"},
  cifar10 = {"data_batch_1_first1000.bin", "data_batch_1.bin"},
  sst2 = {"train.tsv"},
  mrpc = {"train.csv"},
  tinyshakespeare = {"input.txt"},
  tokenizers = {"gpt2/vocab.json"},
  minilm = {"model.safetensors"},
}

--- The folder of a data set, nil where it is absent.
---@param name string
---@return string?
function datasets.dir(name)
  for _, root in ipairs(roots) do
    for _, mark in ipairs(root and assert(marks[name], "unknown data set " .. name) or {}) do
      local file = io.open(root .. "/" .. name .. "/" .. mark)
      if file then
        file:close()
        return root .. "/" .. name
      end
    end
  end
  return nil
end

--- An `it` that gets the folder of a data set, and is pending without it.
---@param sentence string
---@param name string the data set
---@param body fun(dir: string)
function datasets.it(sentence, name, body)
  local environment = getfenv(2)
  local dir = datasets.dir(name)
  environment.it(sentence, function()
    if not dir then environment.pending("needs the data set " .. name) end
    body(dir)
  end)
end

return datasets
