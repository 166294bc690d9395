--- accelhost.data: data sets, samplers, loaders.
--
--   local data = accelhost.data
--   local set = data.TensorDataset(images, labels)
--   for x, y in data.DataLoader(set, {batch_size = 64, shuffle = true}) do print(x, y) end
--
-- Samples are counted from 0 (`set:get(0)`), tables from 1.
local collate = require "accelhost.data.collate"
local dataset = require "accelhost.data.dataset"
local iterable = require "accelhost.data.iterable"
local namespace = require "accelhost.util.namespace"
local sampler = require "accelhost.data.sampler"
local vision = require "accelhost.data.vision"

local lazy = {transforms = {"accelhost.data.transforms"}}
namespace.add(lazy, "accelhost.data.cifar", {"CIFAR10", "CIFAR100"})
namespace.add(lazy, "accelhost.data.rows", {"CSV", "CSVStream", "JSONLines", "JSONLinesStream"})
namespace.add(lazy, "accelhost.data.folder", {"read_image", "decode_image", "DatasetFolder", "ImageFolder"})

return namespace.new("data", {
  Dataset = dataset.Dataset,
  TensorDataset = dataset.TensorDataset,
  Subset = dataset.Subset,
  ConcatDataset = dataset.ConcatDataset,
  random_split = dataset.random_split,

  ImageSet = vision.ImageSet,
  MNIST = vision.MNIST,
  FashionMNIST = vision.FashionMNIST,
  SyntheticDigits = vision.SyntheticDigits,
  mnist = vision.mnist,
  find_mnist = vision.find_mnist,
  find_fashion_mnist = vision.find_fashion_mnist,

  Sampler = sampler.Sampler,
  SequentialSampler = sampler.SequentialSampler,
  RandomSampler = sampler.RandomSampler,
  SubsetRandomSampler = sampler.SubsetRandomSampler,
  WeightedRandomSampler = sampler.WeightedRandomSampler,
  DistributedSampler = sampler.DistributedSampler,
  BatchSampler = sampler.BatchSampler,
  BatchSamplerShard = require "accelhost.data.shard",

  IterableDataset = iterable.IterableDataset,
  ChainDataset = iterable.ChainDataset,
  StackDataset = dataset.StackDataset,

  DataLoader = require "accelhost.data.loader",
  get_worker_info = require("accelhost.data.worker").get_worker_info,
  default_collate = collate.default_collate,
}, lazy)
