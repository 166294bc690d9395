-- Words of a sweep in shell commands and batch scripts of Slurm, with programs in the place of Slurm's own.
local C = require "accelhost._C"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A batch script", function()
    it("holds words quoted", function() pending "needs accelhost-sqlite.so" end)
  end)
end

-- sbatch stores its arguments in sbatch.words and runs the script at once; scancel stores its arguments.
local programs = {
  sbatch = [[printf '%s\n' "$@" > "$FAKES/sbatch.words"; for word; do :; done; sh "$word" > /dev/null 2>&1; echo 77]],
  srun = "exit 0", squeue = "exit 0", scontrol = "exit 0",
  scancel = [[printf '%s\n' "$@" >> "$FAKES/scancel.words"]],
}

local sweep = [[return {script = "train.lua", space = {lr = require "accelhost".sweep.uniform(0, 1)}, metric = "loss",
  trials = 1, launcher = "slurm", parallel = 1, %s}]]

describe("Slurm's programs", function()
  local dir, env
  before_each(function()
    dir = folder.make()
    env = {FAKES = dir, PATH = dir .. "/bin:" .. os.getenv "PATH"}
    assert(require("lfs").mkdir(dir .. "/bin"))
    for name, text in pairs(programs) do files.write(dir .. "/bin/" .. name, "#!/bin/sh\n" .. text .. "\n") end
    os.execute("chmod +x " .. dir .. "/bin/*")
    files.write(dir .. "/train.lua", "")
  end)
  after_each(function() folder.remove(dir) end)

  local function submit(study, options)
    files.write(dir .. "/s.lua", sweep:format(options or ""))
    local result = run.host({"sweep", "s.lua", "--study", study}, {dir = dir, env = env})
    local words = io.open(dir .. "/sbatch.words")
    return words and words:read "*a", result
  end

  it("get the number of a job from the study's folder only if it is digits", function()
    local recover = [[require("accelhost.sweep.launchers.slurm").recover("trial", false)]]
    os.execute(("mkdir %s/trial && touch %s/trial/slurm-0.sh"):format(dir, dir))
    for _, text in ipairs {"1; touch ran", "$(touch ran)", "-u root", "1\n2", ""} do
      files.write(dir .. "/trial/slurm-0.job", text)
      local result = run.host({"-e", recover}, {dir = dir, env = env})
      assert.equal(0, result.code, result.output)
    end
    assert.is_nil(io.open(dir .. "/ran"))
    assert.is_nil(io.open(dir .. "/scancel.words"))
    files.write(dir .. "/trial/slurm-0.job", "42")
    assert.equal(0, run.host({"-e", recover}, {dir = dir, env = env}).code)
    assert.equal("42\n", files.read(dir .. "/scancel.words"))
  end)

  it("get a folder with blanks, quotes and % as one literal word", function()
    local study = "it's my 100%j study"
    local words = submit(study)
    local output = words:match "\n%-%-output=([^\n]*)\n"
    assert.equal("it's my 100%%j study/trials/0000/log.txt", output:sub(-#"it's my 100%%j study/trials/0000/log.txt"))
    assert.equal("0\n", files.read(dir .. "/" .. study .. "/trials/0000/slurm-0.ended"))
  end)

  it("get no folder with control characters or backslashes", function()
    for _, study in ipairs {"a\ntouch ran\nb", "a\\b"} do
      local words, result = submit(study)
      assert.is_nil(words)
      assert.equal(2, result.code)
      assert.matches("expected a study's folder without control characters and backslashes, got", result.stderr)
    end
    assert.is_nil(io.open(dir .. "/ran"))
  end)

  it("get values of options as one word each", function()
    submit("s.study", [[slurm = {comment = 'a "b" \\c # d', partition = "long", exclusive = true}]])
    local script = files.read(dir .. "/s.study/trials/0000/slurm-0.sh")
    assert.truthy(script:find('\n#SBATCH --comment="a \\"b\\" \\\\c # d"\n', 1, true), script)
    assert.truthy(script:find("\n#SBATCH --exclusive\n", 1, true), script)
    assert.truthy(script:find("\n#SBATCH --partition=long\n", 1, true), script)
  end)

  it("get no options that begin another line of the script", function()
    for text, message in pairs {
      [ [[slurm = {comment = "a\ntouch ran"}]] ] = "slurm: comment: expected a number, true or a string without",
      [ [[slurm = {["a\ntouch ran\n"] = 1}]] ] = "slurm: expected names of sbatch's options, got",
      [ [[variables = {["A=1; touch ran; B"] = 1}]] ] = "variables: expected names of letters, digits and '_', got",
    } do
      local words, result = submit("s.study", text)
      assert.is_nil(words)
      assert.equal(2, result.code)
      assert.truthy(result.stderr:find(message, 1, true), result.stderr)
    end
    assert.is_nil(io.open(dir .. "/ran"))
  end)
end)
