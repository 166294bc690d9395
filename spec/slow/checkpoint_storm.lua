-- The checkpointing example is killed by SIGKILL over and over, at random moments and in the middle of saves, and
-- resumed each time: in the end its weights have to be those of an undisturbed run. In one process, where the
-- rank is killed, and in two, where a rank or the launcher is. $N: how many kills, at least that many; two in five of
-- them are between the first write of a save and its rename, as the files left on the disk show.
local faults = require "spec.support.faults"
local folder = require "spec.support.folder"
local lfs = require "lfs"

local seed = tonumber(os.getenv "SEED") or 1
math.randomseed(seed)
local wanted = faults.count(60)
local tally = faults.tally()

local function command(ranks, dir, resume, async)
  local launch = ranks > 1 and ("launch --num_processes %d"):format(ranks) or "run"
  return ('"$0" %s examples/by_feature/checkpointing.lua --project_dir %s %s%s%s'):format(launch, dir,
    "--epochs 2 --train_size 640 --save_every 2", resume and " --resume" or "", async and " --async" or "")
end

-- The number of the checkpoint that is being written and its hidden folder, nil when none is. Old ones are hidden too
-- while they are removed.
local function being_saved(dir)
  local path, newest, number, hidden = dir .. "/checkpoints", -1, -1, nil
  if not lfs.attributes(path) then return nil end
  for name in lfs.dir(path) do
    newest = math.max(newest, tonumber(name:match "^checkpoint_(%d+)$") or -1)
    local this = tonumber(name:match "^%.checkpoint_(%d+)%.saving%-" or "")
    if this and this > number then
      number, hidden = this, name
    end
  end
  if number > newest then return number, hidden end
end

local function is_complete(dir, number)
  return lfs.attributes(("%s/checkpoints/checkpoint_%d/manifest.json"):format(dir, number)) ~= nil
end

-- Wait for a random moment, or for the middle of a save that has not begun yet.
local function wait_for_moment(job, dir, in_save, seconds)
  local until_ = faults.now() + (in_save and 20 or math.random() * seconds)
  local _, left = being_saved(dir)
  while faults.now() < until_ and faults.is_alive(job.pid) do
    if in_save then
      local number, name = being_saved(dir)
      if number and name ~= left then
        faults.sleep(math.random() * 0.004)
        return number
      end
    end
    faults.sleep(0.0003)
  end
end

-- Kill the program, one of its ranks or its launcher. Was a save cut short?
local function kill(job, ranks, dir)
  local number = being_saved(dir)
  local victim = job.pid
  local all = ranks > 1 and faults.ranks_of(job.pid) or {}
  if #all > 0 and math.random() < 0.7 then victim = all[math.random(#all)].pid end
  local killed = faults.signal(victim, "KILL")
  faults.finish(job)
  for _, rank in ipairs(all) do
    for _ = 1, 200 do
      if not faults.is_alive(rank.pid) then break end
      faults.sleep(0.01)
    end
  end
  return killed, killed and number ~= nil and not is_complete(dir, number)
end

-- Count the visible checkpoints; hidden ones are swept by the next save.
local function visible(dir)
  local count = 0
  for _, name in ipairs(folder.names(dir .. "/checkpoints")) do count = count + (name:find "^%." and 0 or 1) end
  return count
end

local function weights(text) return text:match "\nweights: (%x+)\n" or text:match "^weights: (%x+)\n" end

for _, ranks in ipairs {1, 2} do
  local undisturbed = faults.finish(faults.start(command(ranks, "$1", false), folder.make()))
  local expected, seconds = weights(undisturbed.text), undisturbed.seconds
  if not expected then
    print("the undisturbed run failed:\n" .. undisturbed.text)
    os.exit(1)
  end
  local kills, cut, runs, chain = 0, 0, 0, 0
  local share = math.ceil(wanted / 2)
  while kills < share or cut < math.ceil(share * 0.4) do
    local dir = folder.make()
    chain = chain + 1
    local job
    for attempt = 1, 200 do
      runs = runs + 1
      job = faults.start(command(ranks, dir, attempt > 1, chain % 2 == 0))
      -- A chain that continues for long is let through.
      if attempt > 12 then
        faults.finish(job)
        break
      end
      wait_for_moment(job, dir, math.random() < 0.6, seconds)
      local killed, was_cut = kill(job, ranks, dir)
      if job.code == 0 then break end
      kills, cut = kills + (killed and 1 or 0), cut + (was_cut and 1 or 0)
    end
    local problem
    if job.code ~= 0 then
      problem = "did not end well"
    elseif weights(job.text) ~= expected then
      problem = "other weights than " .. expected
    elseif visible(dir) ~= 2 then
      problem = "left " .. table.concat(folder.names(dir .. "/checkpoints"), ", ")
    end
    tally:add(("resumed in %d process%s"):format(ranks, ranks == 1 and "" or "es"), problem, job)
    folder.remove(dir)
  end
  print(("%d process%s: %d kills, %d of them between the first write and the rename of a save; %d runs of %d chains, "
    .. "seed %d"):format(ranks, ranks == 1 and "" or "es", kills, cut, runs, chain, seed))
end
tally:conclude()
