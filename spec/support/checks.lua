--- Sentences about a job, checked by all of its ranks.
--
-- In a case, a script that runs in every rank:
--
--   local checks = require "spec.support.checks"
--   checks.it("adds up", function() assert(...) end)
--   checks.finish()
--
-- In a spec, which makes one sentence of each of them and each number of ranks:
--
--   checks.describe("A job", "spec/distributed/cases/training.lua", {2, 3})
local checks = {}

-- The sentences of this rank that failed, and the number of all.
local failed, tried = {}, 0

--- In a rank: check one sentence. An error in it is reported on stderr, and the rank continues with the next sentence.
---@param sentence string
---@param fn function
function checks.it(sentence, fn)
  tried = tried + 1
  local fine, message = xpcall(fn, function(raised) return debug.traceback(tostring(raised), 2) end)
  if fine then
    print("ok " .. sentence)
    io.stdout:flush()
  else
    failed[#failed + 1] = sentence
    io.stderr:write("not ok ", sentence, "\n", message, "\n")
    io.stderr:flush()
  end
end

--- In a rank, after the last sentence: raise if a sentence failed, so that the job fails.
function checks.finish()
  if #failed > 0 then
    error(("%d of %d sentences failed: %s"):format(#failed, tried, table.concat(failed, "; ")), 0)
  end
end

--- Raise unless two values are the same, tables by their content.
---@param expected any
---@param got any
---@param what? string
function checks.same(expected, got, what)
  local function text(value)
    if type(value) ~= "table" then return type(value) == "string" and ("%q"):format(value) or tostring(value) end
    local keys, parts = {}, {}
    for key in pairs(value) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for i, key in ipairs(keys) do parts[i] = (key == i and "" or tostring(key) .. " = ") .. text(value[key]) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  local a, b = text(expected), text(got)
  if a ~= b then error(("%s: expected %s, got %s"):format(what or "value", a, b), 2) end
end

--- Raise unless two tensors are near.
---@param expected userdata
---@param got userdata
---@param what? string
---@param tolerance? number default 1e-12
function checks.near(expected, got, what, tolerance)
  local off = (expected - got):abs():max():item()
  if not (off <= (tolerance or 1e-12)) then error(("%s: off by %g"):format(what or "tensor", off), 2) end
end

--- Raise unless fn raises an error with this text in it.
---@param text string
---@param fn function
function checks.refused(text, fn)
  local fine, message = pcall(fn)
  if fine then error("it was accepted", 2) end
  if not tostring(message):find(text, 1, true) then
    error(("expected an error with '%s', got: %s"):format(text, tostring(message)), 2)
  end
end

--- Make the sentences of a case.
---@param title string
---@param case string path of the script
---@param ranks integer[] numbers of processes
---@param options? {allow?: string} a pattern of the lines that it may say on stderr; default: none
function checks.describe(title, case, ranks, options)
  local busted, run = require "busted", require "spec.support.run"
  local file = assert(io.open(case))
  local text = file:read "*a"
  file:close()
  assert(text:find("checks.finish()", 1, true), case .. " does not call checks.finish()")
  local results = {}
  local function result_of(count)
    results[count] = results[count] or run.host({"launch", "--num_processes", count, case}, {timeout = 120})
    return results[count]
  end
  busted.describe(title, function()
    for _, count in ipairs(ranks) do
      for sentence in text:gmatch 'checks%.it%("([^"]+)"' do
        busted.it(("%s, in %d process%s"):format(sentence, count, count == 1 and "" or "es"), function()
          local result = result_of(count)
          local said = run.by_rank(result.stdout)
          for rank = 0, count - 1 do
            assert((said[rank] or ""):find("ok " .. sentence .. "\n", 1, true), result.output)
          end
        end)
      end
      busted.it(("ends well in %d process%s"):format(count, count == 1 and "" or "es"), function()
        local result = result_of(count)
        assert(result.code == 0, result.output)
        for line in run.without_delays(result.stderr):gmatch "[^\n]+" do
          assert(options and options.allow and line:find(options.allow), result.stderr)
        end
      end)
    end
  end)
end

return checks
