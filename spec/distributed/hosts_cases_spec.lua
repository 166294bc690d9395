-- The ranks of two hosts behave as those of one: the cases of this folder, two ranks on each.
local folder = require "spec.support.folder"
local hosts = require "spec.support.hosts"
local run = require "spec.support.run"
local scenes = require "spec.support.scenes"

-- Cases that expect results of two ranks, not four, run as one rank on each host.
local cases = {
  accelerator = 4, again = 4, collectives = 4, comm_hooks = 4, ddp = 4, ddp_pytorch = 2, dist_collectives = 4,
  fp8 = 4,
  many_buckets = 4, metrics = 4, optimizers = 4, precision = 4, recompute = 4, reducer = 4, several = 4,
  stream_shares = 2, sync = 4, sync_batch_norm = 4, token_file = 4, training = 4, uneven = 4, utilities = 4,
  windows = 4,
}

describe("On two hosts", function()
  if hosts.missing() then
    it("the cases run on test hosts", function() pending(hosts.missing()) end)
    return
  end

  -- In the current folder, or on each host in a separate one of that name.
  local function launch(ranks, words, own_folders)
    local here = own_folders and ("cd %s/$k; "):format(own_folders) or ""
    local result = hosts.run(2, ([[for k in 1 2; do ( %s on $k launch --num_machines 2 --main_process_ip node1 \
      --secret_file none --num_processes %d %s ) & done; wait]]):format(here, ranks, words), {timeout = 120})
    local said, code = {}, {}
    for node = 1, 2 do
      local text
      text, code[node] = hosts.said(result, node)
      for rank, lines in pairs(run.by_rank(text)) do said[rank] = (said[rank] or "") .. lines end
    end
    return said, code, result
  end

  local scene = scenes.new(it, 3)
  for case, ranks in pairs(cases) do
    local path = "spec/distributed/cases/" .. case .. ".lua"
    scene("passes the checks of " .. case, function() return launch(ranks, path) end, function(said, code, result)
      assert.same({0, 0}, code, result.output)
      local sentences = {}
      for sentence in assert(io.open(path)):read "*a":gmatch 'checks%.it%("([^"]+)"' do
        sentences[#sentences + 1] = "ok " .. sentence .. "\n"
      end
      if #sentences == 0 then sentences[1] = "ok\n" end
      for rank = 0, ranks - 1 do
        for _, sentence in ipairs(sentences) do
          assert(said[rank] and said[rank]:find(sentence, 1, true), result.output)
        end
      end
    end)
  end

  describe("a state", function()
    local case = require("lfs").currentdir() .. "/spec/distributed/cases/checkpoint.lua "
    local dir
    before_each(function()
      dir = folder.make()
      os.execute(("cd %s; mkdir 1 2 both"):format(dir))
    end)
    after_each(function() folder.remove(dir) end)

    it("is saved by all and resumes to the bit from a folder that they share", function()
      os.execute(("cd %s; rmdir 1 2; ln -s both 1; ln -s both 2"):format(dir))
      local whole = launch(4, case .. "run", dir)
      assert.is_truthy(whole[3])
      for _, async in ipairs {"", " async"} do
        local _, code, result = launch(4, case .. "save 4" .. async, dir)
        assert.same({0, 0}, code, result.output)
        local said, _, loaded = launch(4, case .. "load", dir)
        assert.same(whole, said, loaded.output)
        folder.remove(dir .. "/both/run")
      end
    end)

    it("is refused by name of the host that has another folder", function()
      local _, code, result = launch(4, case .. "save 4", dir)
      assert.same({3, 3}, code)
      assert.matches("save_state: rank 2: on node2 there is no 'run/checkpoints/[^']*', which rank 0 has made: all " ..
        "hosts need to share the folder", result.stdout)
      assert.same({}, folder.names(dir .. "/1/run/checkpoints"))
      os.execute(("cd %s; rm -r 1/run 2; ln -s 1 2"):format(dir))
      _, code, result = launch(4, case .. "save 4", dir)
      assert.same({0, 0}, code, result.output)
      os.execute(("cd %s; rm 2; mkdir 2"):format(dir))
      _, code, result = launch(4, case .. "load", dir)
      assert.same({3, 3}, code)
      assert.matches("load_state: 'run/checkpoints/checkpoint_0' cannot be used: on node2 it has no manifest.json " ..
        "%(No such file or directory%), and on node1 it has one: all hosts need to share the folder", result.stdout)
    end)
  end)
end)
