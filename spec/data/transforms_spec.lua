local accelhost = require "accelhost"
local images = require "spec.support.images"
local run = require "spec.support.run"
local data = accelhost.data
local T = data.transforms
local F = T.functional

-- Every sample of the passes over `set`, by index: the loader's samples, with the label as the index.
local function seen(loader, found)
  found = found or {}
  for batch, labels in loader do
    for i, label in ipairs(labels:tolist()) do
      found[label] = found[label] or {}
      table.insert(found[label], batch:select(0, i - 1))
    end
  end
  return found
end

local function same_samples(a, b)
  local count = 0
  for index, list in pairs(a) do
    assert.equal(#list, #b[index])
    for i = 1, #list do assert.is_true(accelhost.equal(list[i], b[index][i])) end
    count = count + 1
  end
  return count
end

local pictures = accelhost.arange(40 * 3 * 8 * 8):view(40, 3, 8, 8):remainder(251):to("uint8")
local numbers = accelhost.arange(40)

-- The set by a loader's gatherer, and the same one image at a time.
local function both(transform)
  local fast = data.ImageSet(pictures, numbers, {transform = transform})
  local slow = data.ImageSet(pictures, numbers, {transform = function(image) return transform(image) end})
  return fast, slow
end

describe("Transforms that move pixels", function()
  local one = images.bytes(1)

  it("pad as torchvision does in every mode", function()
    for _, mode in ipairs {"constant", "edge", "reflect", "symmetric"} do
      local fill = mode == "constant" and 9 or 0
      images.check("pad " .. mode, F.pad(one, {1, 2, 3, 4}, {fill = fill, padding_mode = mode}))
      images.check("pad " .. mode, T.Pad({1, 2, 3, 4}, {fill = fill, padding_mode = mode})(one))
    end
    images.check("pad channels", F.pad(images.bytes(3, 2, 2), {1, 0}, {fill = {7, 8, 9}}))
  end)

  it("crop as torchvision does, also beyond the image", function()
    images.check("crop inside", F.crop(one, 1, 2, 3, 4))
    images.check("crop beyond", F.crop(one, -1, -2, 4, 10))
    images.check("center_crop", T.CenterCrop {4, 3}(one))
    images.check("center_crop beyond", F.center_crop(one, {10, 3}))
    images.check("hflip", F.hflip(one))
    images.check("vflip", F.vflip(one))
  end)

  it("draw from the global generator as torchvision does when they are called", function()
    for seed = 0, 2 do
      accelhost.manual_seed(seed)
      images.check("augment " .. seed, T.Compose {
        T.RandomCrop(5, {padding = 2}), T.RandomHorizontalFlip(), T.RandomVerticalFlip(0.3),
        T.RandomCrop({6, 4}, {pad_if_needed = true, padding_mode = "reflect"}),
      }(one))
    end
  end)

  it("do so also after a loader's sample has failed", function()
    local Failing = data.Dataset:extend "Failing"
    function Failing:len() return 2 end -- luacheck: ignore self
    function Failing:get() error("no sample") end -- luacheck: ignore self
    assert.error_matches(function() data.DataLoader(Failing()):batches()() end, "no sample")
    accelhost.manual_seed(3)
    local expected = accelhost.randint(0, 4, {1}):item()
    accelhost.manual_seed(3)
    local ramp = accelhost.arange(4):view(1, 4)
    assert.equal(expected, T.RandomCrop(1)(ramp):item())
  end)

  it("refuse mismatched arguments", function()
    assert.error_matches(function() T.RandomCrop(8)(one) end,
      "RandomCrop: a crop of %(8, 8%) is larger than the image of %(7, 6%)")
    assert.error_matches(function() T.RandomCrop(12, {padding = 1})(one) end, "larger than the padded image")
    assert.error_matches(function() T.RandomCrop(2, {padding = -1}) end, "expected integers of at least 0")
    assert.error_matches(function() T.RandomCrop {1, 2, 3} end, "expected one or two integers")
    assert.error_matches(function() T.Pad {1, 2, 3} end, "expected 1, 2 or 4 integers, got 3")
    assert.error_matches(function() T.Pad(7, {padding_mode = "reflect"})(one) end, "an edge of 7 does not fit")
    assert.error_matches(function() F.pad(one, 1, {fill = {1, 2}}) end, "2 values for an image of shape %(1, 7, 6%)")
    assert.error_matches(function() T.RandomHorizontalFlip(1.5) end, "a probability between 0 and 1")
    assert.error_matches(function() T.RandomHorizontalFlip()(3) end, "expected an image tensor")
  end)
end)

describe("A loader over images in memory", function()
  local chains = {
    T.Compose {
      T.RandomCrop(8, {padding = 2}), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize({1, 2, 3}, {4, 5, 6}),
    },
    T.Compose {T.ToTensor(), T.RandomCrop(8, {padding = 2}), T.RandomVerticalFlip(), T.Normalize(0.5, 0.2)},
    T.Compose {T.RandomHorizontalFlip(0.3), T.Pad({1, 2}, {fill = {9, 8, 7}}), T.RandomCrop(6), T.Pad(1, {fill = 3})},
    T.Compose {T.Pad(3, {padding_mode = "symmetric"}), T.CenterCrop {16, 5}, T.ConvertImageDtype()},
    T.Compose {
      T.Pad(3, {padding_mode = "reflect"}), T.Compose {T.RandomVerticalFlip(), T.Pad(2, {padding_mode = "edge"})},
    },
    T.Compose {T.ToTensor(), T.RandomErasing(1)},
    T.Compose {
      T.RandomCrop(8, {padding = 2}), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize({1, 2, 3}, {4, 5, 6}),
      T.RandomErasing(0.6, {0.1, 0.9}, {0.2, 5}, {0.25, -1, 3}),
    },
    -- The transforms after it change the filling too.
    T.Compose {T.ToTensor(), T.RandomErasing {value = 0.5}, T.Normalize({1, 2, 3}, {4, 5, 6})},
    T.Compose {T.ConvertImageDtype(), T.RandomErasing(1, {scale = {0.9, 1}})}, -- seldom finds a place
  }

  it("does their transforms while it gathers, to the bit as one by one", function()
    for _, transform in ipairs(chains) do
      local fast, slow = both(transform)
      assert.is_not_nil(fast:native())
      assert.is_nil(slow:native())
      local options = {batch_size = 16, shuffle = true, seed = 5}
      local first, second = data.DataLoader(fast, options), data.DataLoader(slow, options)
      assert.equal(40, same_samples(seen(first), seen(second)))
      same_samples(seen(first), seen(second))
    end
  end)

  it("leaves unsupported cases to Lua", function()
    for _, transform in ipairs {
      T.Compose {T.ToTensor(), T.Normalize(0.5, 0.2), T.Pad(1)}, -- 0 is no byte any more
      T.Compose {T.ToTensor(), T.Pad(1, {fill = 0.5})},
      T.Compose {T.Pad(1, {fill = 300})},
      T.Compose {T.Lambda(function(image) return image end), T.ToTensor()},
      T.Pad(-1),
      T.Compose {T.ToTensor(), T.RandomErasing {value = "random"}},
      T.Compose {T.ToTensor(), T.RandomErasing {value = {1, 2}}}, -- raises when it is called
      T.Compose {T.ToTensor(), T.RandomErasing(), T.RandomHorizontalFlip()}, -- draws in this order
      T.Compose {T.ToTensor(), T.RandomErasing(), T.RandomErasing()},
      T.RandomErasing(), -- of bytes
    } do
      assert.is_nil(data.ImageSet(pictures, numbers, {transform = transform}):native())
    end
  end)

  it("draws the same numbers for a sample whatever the ranks, the batches and the order", function()
    local fast, slow = both(chains[1])
    local function passes(set, size, batch)
      local found = {}
      for rank = 0, size - 1 do
        accelhost.manual_seed(7)
        seen(data.DataLoader(set, {batch_size = batch, shuffle = true}):shard {rank = rank, size = size}, found)
      end
      return found
    end
    local alone = passes(fast, 1, 10)
    same_samples(alone, passes(fast, 2, 5))
    same_samples(alone, passes(slow, 4, 2))
    accelhost.manual_seed(7)
    same_samples(alone, seen(data.DataLoader(fast, {batch_size = 7})))
  end)

  it("does so in a job of several ranks, with workers too", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write [[
local accelhost = require "accelhost"
local data = accelhost.data
local T = data.transforms
local accelerator = accelhost.Accelerator()
accelhost.manual_seed(5)
local augment = T.Compose {T.RandomCrop(8, {padding = 2}), T.RandomHorizontalFlip(), T.ToTensor()}
local images = accelhost.arange(24 * 64):view(24, 1, 8, 8):remainder(251):to("uint8")
local workers = tonumber(arg[1])
local set = data.ImageSet(images, accelhost.arange(24), {
  transform = workers > 0 and function(image) return augment(image) end or augment,
})
local loader = accelerator:prepare(data.DataLoader(set, {
  batch_size = 8 / accelerator.num_processes, shuffle = true, num_workers = workers,
}))
local lines = {}
for epoch = 1, 2 do
  for batch, labels in loader do
    local sums = accelerator:gather(batch:flatten(1):sum(1)):tolist()
    for i, label in ipairs(accelerator:gather(labels):tolist()) do
      lines[#lines + 1] = ("%d %d %.3f"):format(epoch, label, sums[i])
    end
  end
end
table.sort(lines)
accelerator:print(table.concat(lines, "\n"))
]]
    file:close()
    local alone = run.host({path, "0"}, {timeout = 40})
    run.succeeds(alone)
    assert.equal(48, select(2, alone.stdout:gsub("\n", "")))
    for _, workers in ipairs {"0", "2"} do
      local job = run.host({"launch", "--num_processes", "2", path, workers}, {timeout = 40})
      assert.equal("", run.without_delays(job.stderr))
      assert.equal(alone.stdout, job.stdout)
    end
    os.remove(path)
  end)

  it("draws others in the next pass, and when the sampler repeats the sample", function()
    local fast, slow = both(T.Compose {T.RandomCrop(3), T.ToTensor()})
    local loader = data.DataLoader(fast, {batch_size = 40, seed = 1})
    local first, second, differ = seen(loader), seen(loader), 0
    for index in pairs(first) do
      differ = differ + (accelhost.equal(first[index][1], second[index][1]) and 0 or 1)
    end
    assert.is_true(differ > 20)
    for _, set in ipairs {fast, slow} do
      local sampler = {}
      for i = 1, 30 do sampler[i] = 3 end
      local found, kinds = seen(data.DataLoader(set, {batch_size = 4, sampler = sampler, seed = 1}))[3], {}
      assert.is_true(accelhost.equal(first[3][1], found[1]))
      for _, image in ipairs(found) do kinds[image:sum():item()] = true end
      local count = 0
      for _ in pairs(kinds) do count = count + 1 end
      assert.is_true(count > 5)
    end
  end)

  it("uses the numbers of the loader's data set, also through a Subset", function()
    local fast, slow = both(chains[1])
    local order = {39, 3, 3, 20}
    local options = {batch_size = 3, seed = 2}
    local a = seen(data.DataLoader(data.Subset(fast, order), options))
    assert.equal(3, same_samples(a, seen(data.DataLoader(data.Subset(slow, order), options))))
  end)

  it("continues with the same numbers after a restart", function()
    local fast = both(chains[1])
    local loader = data.DataLoader(fast, {batch_size = 8, shuffle = true})
    local state, rest
    for batch in loader do
      if state then rest = batch break end
      state = loader:state_dict()
    end
    local again = data.DataLoader(fast, {batch_size = 8, shuffle = true})
    again:load_state_dict(accelhost.json.decode(accelhost.json.encode(state)))
    assert.is_true(accelhost.equal(rest, (again:batches()())))
  end)
end)

describe("Transforms of values", function()
  local one = images.bytes(3, 2, 3)

  it("normalize and change dtypes as torchvision does", function()
    local floats = F.to_dtype(one, "float32", {scale = true})
    images.check("normalize", F.normalize(floats, {0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}), 1e-6)
    local first = one:narrow(0, 0, 1)
    for _, dtype in ipairs {"float32", "float64", "int32"} do
      local found = F.to_dtype(first, dtype, true)
      assert.equal(dtype, found.dtype)
      images.check("to_dtype " .. dtype, found, 1e-9)
    end
    images.check("to_dtype back", T.ConvertImageDtype "uint8"(floats:narrow(0, 0, 1)))
    assert.is_true(accelhost.equal(one:to("float32"), T.ToDtype "float32"(one)))
    assert.equal(3, T.ToImage()(one:select(0, 0)):dim())
    assert.error_matches(function() F.to_dtype(floats, "int32", true) end, "would lose precision")
  end)
end)
