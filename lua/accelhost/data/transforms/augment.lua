--- Automatic augmentation: AutoAugment, RandAugment, TrivialAugmentWide, AugMix. The operations, their magnitudes and
--- the draws are torchvision's.
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local dirichlet = require "accelhost.data.transforms.dirichlet"
local operations = require "accelhost.data.transforms.operations"
local policies = require "accelhost.data.transforms.policies"
local rng_streams = require "accelhost.data.rng_streams"
local sizes = require "accelhost.data.transforms.sizes"

local fail = arguments.fail
local augment = {}

local INTERPOLATION, FILL = {"interpolation: 'nearest'|'bilinear'", "nearest"}, {"fill: numbers"}

-- Draw an event of probability p as `torch.rand(()) <= p`.
local function happens(p) return rng_streams.uniform(0, 1) <= p end

-- Draw one of a space's operations.
local function pick(space) return space[rng_streams.below(#space) + 1] end

-- Return the image after an operation, its sign drawn; `at` numbers its magnitude.
local function applied(self, image, name, most, bins, at)
  local magnitude = operations.magnitude(name, most, bins, at, image:size(-2), image:size(-1))
  if operations.is_signed(name) and happens(0.5) then magnitude = -magnitude end
  return operations.apply(image, name, magnitude, self.interpolation, self.fill)
end

local function check_bins(what, bins)
  if bins < 2 then fail("%s: num_magnitude_bins: expected at least 2, got %d", what, bins) end
end

local MOVES, FACTORS, VALUES = operations.MOVES, operations.FACTORS, operations.VALUES
local MODERATE = {shear = 0.3, shift = 150 / 331, angle = 30, factor = 0.9, bits = 4}
local WIDE = {shear = 0.99, pixels = 32, angle = 135, factor = 0.99, bits = 6}
local MIXED = {shear = 0.3, shift = 1 / 3, angle = 30, factor = 0.9, most_bits = 4, bits = 4}

local AutoAugment = class.new "AutoAugment"
augment.AutoAugment = AutoAugment

local set_auto = arguments.setter("AutoAugment", {
  {"policy: 'imagenet'|'cifar10'|'svhn'", "imagenet"}, INTERPOLATION, FILL,
})

--- One of the 25 pairs of operations that were found for a data set.
--
--   transforms.AutoAugment()(image):size(-1)  --> 28
---@param policy? string "imagenet" (default), "cifar10" or "svhn"
---@param interpolation? string "nearest" (default) or "bilinear"
---@param fill? number|number[] the value outside of a moved image, one or one for each channel
function AutoAugment:init(...)
  set_auto(self, ...)
  self._policies = policies.of(self.policy)
end

function AutoAugment:__call(image)
  sizes.check("AutoAugment", image, 3)
  for _, step in ipairs(pick(self._policies)) do
    if happens(step.p) then image = applied(self, image, step.name, MODERATE, 10, step.at) end
  end
  return image
end

sizes.print_fields(AutoAugment, "policy", "interpolation", "fill")

local RandAugment = class.new "RandAugment"
augment.RandAugment = RandAugment

local set_rand = arguments.setter("RandAugment", {
  {"num_ops: size", 2}, {"magnitude: size", 9}, {"num_magnitude_bins: count", 31}, INTERPOLATION, FILL,
})
local every_operation = operations.space({"Identity"}, MOVES, FACTORS, VALUES)

--- `num_ops` random operations of one magnitude, one after the other.
--
--   transforms.RandAugment()(image):size(-1)  --> 28
---@param num_ops? integer default 2
---@param magnitude? integer of all operations, from 0 to num_magnitude_bins - 1; default 9
---@param num_magnitude_bins? integer default 31
---@param interpolation? string "nearest" (default) or "bilinear"
---@param fill? number|number[] the value outside of a moved image, one or one for each channel
function RandAugment:init(...)
  set_rand(self, ...)
  check_bins("RandAugment", self.num_magnitude_bins)
  if self.magnitude >= self.num_magnitude_bins then
    fail("RandAugment: magnitude: expected less than num_magnitude_bins = %d, got %d", self.num_magnitude_bins,
      self.magnitude)
  end
end

function RandAugment:__call(image)
  sizes.check("RandAugment", image, 3)
  for _ = 1, self.num_ops do
    image = applied(self, image, pick(every_operation), MODERATE, self.num_magnitude_bins, self.magnitude)
  end
  return image
end

sizes.print_fields(RandAugment, "num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

local TrivialAugmentWide = class.new "TrivialAugmentWide"
augment.TrivialAugmentWide = TrivialAugmentWide

local set_trivial = arguments.setter("TrivialAugmentWide", {
  {"num_magnitude_bins: count", 31}, INTERPOLATION, FILL,
})

--- One random operation of a random magnitude.
--
--   transforms.TrivialAugmentWide()(image):size(-1)  --> 28
---@param num_magnitude_bins? integer default 31
---@param interpolation? string "nearest" (default) or "bilinear"
---@param fill? number|number[] the value outside of a moved image, one or one for each channel
function TrivialAugmentWide:init(...)
  set_trivial(self, ...)
  check_bins("TrivialAugmentWide", self.num_magnitude_bins)
end

function TrivialAugmentWide:__call(image)
  sizes.check("TrivialAugmentWide", image, 3)
  local name = pick(every_operation)
  local at = operations.has_magnitude(name) and rng_streams.below(self.num_magnitude_bins)
  return applied(self, image, name, WIDE, self.num_magnitude_bins, at)
end

sizes.print_fields(TrivialAugmentWide, "num_magnitude_bins", "interpolation", "fill")

local AugMix = class.new "AugMix"
augment.AugMix = AugMix

local BINS = 10 -- magnitudes of AugMix

local set_mix = arguments.setter("AugMix", {
  {"severity: count", 3}, {"mixture_width: count", 3}, {"chain_depth: integer", -1}, {"alpha: positive", 1},
  {"all_ops: flag", true}, {"interpolation: 'nearest'|'bilinear'", "bilinear"}, FILL,
})

--- The image blended with chains of random operations.
--
--   transforms.AugMix()(image):size(-1)  --> 28
---@param severity? integer largest magnitude, 1 to 10; default 3
---@param mixture_width? integer number of chains; default 3
---@param chain_depth? integer operations of a chain; below 1 (default -1): 1 to 3, at random
---@param alpha? number concentration of the random weights; default 1
---@param all_ops? boolean use Brightness, Color, Contrast and Sharpness too; default true
---@param interpolation? string "nearest" or "bilinear" (default)
---@param fill? number|number[] the value outside of a moved image, one or one for each channel
function AugMix:init(...)
  set_mix(self, ...)
  if self.severity > BINS then fail("AugMix: severity: expected 1 to %d, got %d", BINS, self.severity) end
  self._space = operations.space(MOVES, VALUES, self.all_ops and FACTORS or {})
end

-- Return the image after one chain.
function AugMix:_chain(image)
  local depth = self.chain_depth > 0 and self.chain_depth or rng_streams.below(3) + 1
  for _ = 1, depth do
    local name = pick(self._space)
    image = applied(self, image, name, MIXED, BINS, operations.has_magnitude(name) and rng_streams.below(self.severity))
  end
  return image
end

function AugMix:__call(image)
  sizes.check("AugMix", image, 3)
  local count = image:dim() > 3 and image:size(0) or 1
  local shape = {count}
  for i = 2, math.max(image:dim(), 4) do shape[i] = 1 end
  local whole = dirichlet.sample(self.alpha, count, 2)
  local weights = dirichlet.sample(self.alpha, count, self.mixture_width) * whole:narrow(1, 1, 1)
  local batch = image:dim() == 3 and image:unsqueeze(0) or image
  local function weighted(part, i, chain) return part:select(1, i):reshape(shape):to(image.device) * chain end
  local mix = weighted(whole, 0, batch)
  for i = 0, self.mixture_width - 1 do mix:add_(weighted(weights, i, self:_chain(batch))) end
  return mix:reshape(image:shape()):to(image.dtype)
end

sizes.print_fields(AugMix, "severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill")

return augment
