-- The guides as a newcomer follows them: their blocks typed at the prompt, and written to a file.
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

-- The lines that a file with a guide's code begins with, which the guide's sentence about the prompt names.
local function head_of(guide)
  local sentence = guide:match "\n(Type the blocks at the prompt, or begin a file with .-)%.\n\n" or ""
  local lines = {}
  for line in sentence:gmatch "`(local [^`]*)`" do lines[#lines + 1] = line end
  return lines
end

-- The blocks of Lua. A block that begins with a file's name in a comment is that file: the specs of its guide run it.
local function blocks_of(guide)
  local blocks = {}
  for block in guide:gmatch "\n```lua\n(.-\n)```" do
    if not block:find "^%-%- [%w_]+%.lua\n" then blocks[#blocks + 1] = block end
  end
  return blocks
end

-- Temporary files in the current folder, which the spec removes.
local own_files = [[
do
  local count, base = 0, %q
  os.tmpname = function()
    count = count + 1
    local path = base .. "_" .. count
    assert(io.open(path, "w")):close()
    return path
  end
end
]]

describe("The index of the guides", function()
  it("lists each guide once, in groups, and help and the site follow it", function()
    local listed, groups = {}, {}
    for line in io.lines "examples/guides/README.md" do
      local name, target = line:match "^%- %[([%w_]+)%]%(([%w_%.]+)%): %S"
      if name then
        assert.equal(name .. ".md", target)
        assert.is_nil(listed[name], name)
        listed[name], listed[#listed + 1] = true, name
      end
      groups[#groups + 1] = line:match "^## (.*)$"
    end
    for name in lfs.dir "examples/guides" do
      local guide = name:match "^([%l_]+)%.md$"
      assert.truthy(not guide or listed[guide], name)
    end
    local text, position = run.host({"help"}).stdout, 1
    for _, group in ipairs(groups) do assert.truthy(text:find("\n  Guides: " .. group .. "\n", 1, true), group) end
    for _, name in ipairs(listed) do
      local found = text:find("\n    " .. name .. " ", position, true)
      assert.truthy(found, name)
      position = found
    end
  end)
end)

describe("The guides", function()
  local guides, runs, leave = {}, 0, nil
  setup(function()
    for name in lfs.dir "examples/guides" do
      local text = name:find "%.md$" and files.read("examples/guides/" .. name)
      local blocks = text and blocks_of(text) or {}
      if #blocks > 0 then guides[#guides + 1] = {name = name, text = text, blocks = blocks} end
    end
    table.sort(guides, function(a, b) return a.name < b.name end)
    assert.truthy(#guides >= 18, #guides)
    if run.path:sub(1, 1) ~= "/" then run.path = lfs.currentdir() .. "/" .. run.path end
    leave = folder.enter()
  end)
  teardown(function() leave() end)

  -- A guide's code, with new temporary files.
  local function code_of(...)
    runs = runs + 1
    return table.concat({own_files:format(("%s/run_%d"):format(lfs.currentdir(), runs)), ...}, "\n")
  end

  -- Return the failures of each guide, run by `start(guide)`.
  local function failures(start)
    local list = {}
    for _, guide in ipairs(guides) do
      local result = start(guide)
      if result.code ~= 0 then list[#list + 1] = guide.name .. ": " .. result.output:sub(-400) end
    end
    return table.concat(list, "\n")
  end

  local one_thread = {OMP_NUM_THREADS = "1"}

  it("run block by block at the prompt", function()
    assert.equal("", failures(function(guide)
      return run.host({"repl"}, {stdin = code_of(unpack(guide.blocks)), env = one_thread})
    end))
  end)

  it("run as a file that begins with the lines that they name", function()
    assert.equal("", failures(function(guide)
      files.write("guide.lua", code_of(table.concat(head_of(guide.text), "\n"), unpack(guide.blocks)))
      return run.host({"guide.lua"}, {env = one_thread})
    end))
  end)

  it("name these lines wherever a block does not", function()
    for _, guide in ipairs(guides) do
      local has_them = guide.blocks[1]:find('require "accelhost"', 1, true) ~= nil
      assert.equal(not has_them, #head_of(guide.text) == 2, guide.name)
    end
  end)
end)
