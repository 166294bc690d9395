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

-- Big-endian integers of 4 bytes.
local function integers(...)
  local text = ""
  for _, value in ipairs {...} do
    text = text .. string.char(math.floor(value / 2 ^ 24) % 256, math.floor(value / 2 ^ 16) % 256,
      math.floor(value / 256) % 256, value % 256)
  end
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

--- Write files of MNIST's format with few images: for programs that evaluate on a whole test set where a spec is about
--- training. Pixel (i, j) of image n is (131 n + 17 i + 7 j) mod 256, its label (7 n) mod 10.
---@param path string the folder
---@param part string "train" or "t10k"
---@param images integer
function datasets.write_mnist(path, part, images)
  local pixels, labels = {}, {}
  for n = 0, images - 1 do
    for i = 0, 27 do
      for j = 0, 27 do pixels[#pixels + 1] = string.char((131 * n + 17 * i + 7 * j) % 256) end
    end
    labels[n + 1] = string.char(7 * n % 10)
  end
  write(("%s/%s-images-idx3-ubyte"):format(path, part), integers(0x803, images, 28, 28) .. table.concat(pixels))
  write(("%s/%s-labels-idx1-ubyte"):format(path, part), integers(0x801, images) .. table.concat(labels))
end

return datasets
