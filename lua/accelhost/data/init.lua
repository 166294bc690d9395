--- accelhost.data: data sets, samplers, loaders.
--
--   local data = accelhost.data
--   local set = data.TensorDataset(images, labels)
--   for x, y in data.DataLoader(set, {batch_size = 64, shuffle = true}) do print(x, y) end
--
-- Samples are counted from 0 (`set:get(0)`), tables from 1.
local namespace = require "accelhost.util.namespace"

-- File -> the names that it defines.
local files = {
  collate = {"default_collate"},
  ["sets.dataset"] = {
    "Dataset", "TensorDataset", "ListDataset", "Subset", "ConcatDataset", "StackDataset", "random_split",
  },
  iterable = {"IterableDataset", "ChainDataset"},
  sampler = {
    "Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "DistributedSampler", "BatchSampler",
  },
  ["sets.vision"] = {
    "ImageSet", "MNIST", "FashionMNIST", "SyntheticDigits", "mnist", "find_mnist", "find_fashion_mnist",
  },
  ["sets.cifar"] = {"CIFAR10", "CIFAR100"},
  ["tables.table"] = {"Table"},
  ["tables.load"] = {"load_dataset"},
  ["tables.row_stream"] = {"RowStream"},
  ["sets.tokens"] = {"TokenFile"},
  ["sets.write_tokens"] = {"write_tokens"},
  ["sets.image_files"] = {"read_image", "decode_image", "make_grid", "save_image", "write_png"},
  ["sets.folder"] = {"DatasetFolder", "ImageFolder"},
  ["loader.worker"] = {"get_worker_info"},
}

local lazy = {
  transforms = {"accelhost.data.transforms"},
  DataLoader = {"accelhost.data.loader"},
  BatchSamplerShard = {"accelhost.data.partition.sampler_shard"},
}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.data." .. file, names) end

return namespace.new("data", {}, lazy)
