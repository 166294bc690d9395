-- Pages of 16 and 64 KiB, as kernels for aarch64 have, simulated by spec/support/large_pages.c: no call passes an
-- address or an offset within a page, or a length that would change the neighbour of a block.
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local library = run.path:match "^(.*)/" .. "/large_pages.so"

-- The program that the specs run may be a link into the build folder; the path is whole, for programs elsewhere.
local function helper()
  local here = require("lfs").currentdir()
  for _, path in ipairs {library, "build/large_pages.so"} do
    path = path:find "^/" and path or here .. "/" .. path
    local file = io.open(path)
    if file then
      file:close()
      return path
    end
  end
  error "large_pages.so is not built (make build/selftest)"
end

local preload, training = helper(), require("lfs").currentdir() .. "/spec/distributed/cases/recovered.lua"

local function succeed(size, words, env)
  env = env or {}
  env.LD_PRELOAD, env.LARGE_PAGES = preload, size
  local result = run.host(words, {timeout = 60, env = env})
  run.succeeds(result)
  assert.is_nil(result.output:find "large_pages:", result.output)
  return result.stdout
end

-- Large blocks are freed, returned to the system and used again between others that keep their values.
local blocks = [[
  local accelhost = require "accelhost"
  local kept, lost = {}, {}
  for i = 1, 12 do
    kept[i] = accelhost.full({1000 * i, 300}, i)
    lost[i] = accelhost.full({1000 * i, 301}, -i)
  end
  lost = nil
  accelhost.empty_cache()
  local more = accelhost.full({9000, 1000}, -1)
  for i = 1, 12 do
    assert(kept[i]:min():item() == i and kept[i]:max():item() == i, "block " .. i .. " was changed")
  end
  local sum = 0
  for i = 1, 1e6 do sum = sum + i % 3 end
  print(sum, require("ffi").C.sysconf(30))]]

-- A loader with workers, whose batches are in shared memory, and a file that is mapped.
local session = [[
  local accelhost = require "accelhost"
  local path = arg[1]
  accelhost.save({weight = accelhost.arange(300000)}, path)
  local weight = accelhost.load(path).weight
  local set = {}
  for i = 1, 64 do set[i] = {accelhost.full({3, 64, 64}, i), i} end
  local count, sum = 0, 0
  for images, labels in accelhost.data.DataLoader(set, {batch_size = 8, num_workers = 2}) do
    count = count + images:size(0)
    sum = sum + labels:sum():item()
  end
  print(count, sum, weight:max():item())]]

-- Not with the address sanitizer, whose library must be the first one, nor with that for threads.
local sanitized = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"

describe("With pages of more than 4 KiB,", function()
  if sanitized then
    pending("memory calls keep to whole pages (needs a build without a sanitizer's own memory calls)", function() end)
    return
  end
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  for _, size in ipairs {16384, 65536} do
    it(("blocks of memory keep their values (%d bytes)"):format(size), function()
      assert.equal(("1000000\t%dLL\n"):format(size),
        succeed(size, {"-e", "require('ffi').cdef 'long sysconf(int);' " .. blocks}))
    end)

    it(("files are mapped and workers share memory (%d bytes)"):format(size), function()
      assert.equal("64\t2080\t299999\n", succeed(size, {"-e", session, "tensors.pt"}))
    end)

    it(("ranks exchange, train and save (%d bytes)"):format(size), function()
      assert.matches("7 checks passed", succeed(size, {"test", "--num_processes", "3"}))
    end)

    it(("a killed rank is replaced from the replay log (%d bytes)"):format(size), function()
      local env = {FOLDER = require("lfs").currentdir(), FEATURES = "", KILL = ""}
      local calm = succeed(size, {"launch", "--num_processes", "2", training}, env)
      env.KILL = "1:backward:4 0:stepped:9"
      local words = {"launch", "--num_processes", "2", "--recover", "live", "--max_restarts", "4", training}
      assert.same(run.by_rank(calm), run.by_rank(succeed(size, words, env)))
    end)
  end
end)
