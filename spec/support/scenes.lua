--- Specs whose scenes mostly wait for something: several are played at once, and each is checked in its own sentence.
--
--   local scene = scenes.new(it, 4)
--   scene("...", function() return run.host {...} end, function(result) assert.equal(0, result.code) end)
local run = require "spec.support.run"

local scenes = {}

---@param it function
---@param most integer how many are played at once
---@return fun(sentence: string, play: function, check: function) scene
function scenes.new(it, most)
  local list = {}

  -- Those that are played together with a scene.
  local function play_with(number)
    local first, calls = number - (number - 1) % most, {}
    for i = first, math.min(first + most - 1, #list) do
      calls[#calls + 1] = function()
        local results = {xpcall(list[i].play, function(e) return type(e) == "string" and debug.traceback(e) or e end)}
        list[i].results = results
      end
    end
    run.at_once(calls)
  end

  return function(sentence, play, check)
    local number = #list + 1
    list[number] = {play = play}
    it(sentence, function()
      if not list[number].results then play_with(number) end
      local results = list[number].results
      if not results[1] then error(results[2], 0) end
      check(unpack(results, 2))
    end)
  end
end

return scenes
