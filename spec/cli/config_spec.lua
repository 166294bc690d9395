-- accelhost config: the file of settings, made by questions or without, shown and rewritten.
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local leave
local function config(words, options)
  local all = {"config"}
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run.host(all, options or {timeout = 20})
end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- The questions on a pseudo-terminal; `typing` is a piece of shell that types, `variables` are set for the program.
local function at_terminal(typing, words, variables)
  local line = (variables and "env " .. variables .. " " or "") .. run.quote(run.path) .. " config " .. words
  local shell = ("( %s ) | script -qec %s /dev/null; echo \"[$?]\""):format(typing, run.quote(line))
  local result = run.program({"bash", "-c", "set -o pipefail; " .. shell}, {timeout = 30})
  return result.stdout:gsub("\r\n", "\n")
end

local first = "# Settings of 'accelhost launch'; 'accelhost config keys' lists all.\n"

describe("accelhost config", function()
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("asks with defaults from the machine, asks again after a bad answer, and writes the answers", function()
    local said = at_terminal([[printf '3\nmany\n2\nbf17\nbf16\n\n 4 \n\n1.5G\nlogs of: "us"\n3\n\nnode1\n\n']],
      "--config_file deep/in/c.yaml")
    assert.matches("This machine has %d+ processors?, %d+%.%d GiB of memory, ", said)
    assert.matches("How many processes %(ranks%) shall train together%? %[%d+%]: ", said)
    assert.truthy(said:find("  num_cpu_threads_per_process expects a whole number in 1..1024, got 'many'\n", 1, true))
    assert.truthy(said:find("  mixed_precision expects no, bf16, fp16 or fp8, got 'bf17'\n", 1, true))
    assert.truthy(said:find("Written: deep/in/c.yaml\n", 1, true))
    assert.equal(first .. [[
num_processes: 3
num_cpu_threads_per_process: 2
num_machines: 3
main_process_ip: 'node1'
mixed_precision: 'bf16'
gradient_accumulation_steps: 1
max_restarts: 4
timeout: 600
max_memory: 1.5G
log_dir: 'logs of: "us"'
]], read "deep/in/c.yaml")
    assert.equal("rw-------", require("lfs").attributes("deep/in/c.yaml").permissions)
    local shown = run.host {"launch", "--config_file", "deep/in/c.yaml", "--show_config"}
    assert.matches('\nlog_dir +logs of: "us" +deep/in/c.yaml:11\n', shown.stdout)
  end)

  -- In the order of Accelerate's questions: of which kind, how many, which ones, in which precision.
  it("asks about GPUs where there are some, and accepts numbers of those only", function()
    if not sim.there then return pending "needs the simulated GPU (make sim)" end
    local answers = "'\\n\\n0,x\\n0,2\\n1\\n\\nfp16\\n\\n\\n\\n\\n\\n\\n'"
    local said = at_terminal("printf " .. answers, "--config_file c.yaml",
      "ACCELHOST_CUDA=sim ACCELHOST_SIM_DEVICES=2")
    assert.matches("GiB of memory, 2 GPUs\n", said)
    assert.matches("on the CPU although there are GPUs %(true, false%)%? %[false%]: .*train together%? %[2%]: .*"
      .. "Which GPUs shall they use %(all, or numbers as in 0,1%)%? %[all%]: .*"
      .. "gpu_ids expects numbers or identifiers of GPUs, as in 0,1, or all, got '0,x'\n.*"
      .. "gpu_ids: there are 2 GPUs, got '0,2'\n.*Mixed precision %(no, bf16, fp16, fp8%)%? %[no%]: ", said)
    local text = read "c.yaml"
    assert.matches("num_processes: 2\ncpu: false\ngpu_ids: '?1'?\n.*mixed_precision: 'fp16'\n", text)
    said = at_terminal("printf 'true\\n1\\n\\n\\n\\n\\n\\n\\n\\n\\n'", "--config_file d.yaml",
      "ACCELHOST_CUDA=sim ACCELHOST_SIM_DEVICES=2")
    assert.is_nil(said:find("Which GPUs", 1, true))
    assert.matches("num_processes: 1\ncpu: true\n", read "d.yaml")
  end)

  it("uses a file's values as defaults, and `none` for settings that are not to be set", function()
    write("c.yaml", "num_processes: 7\nmax_memory: 2G\npatience: 3\n")
    local said = at_terminal([[printf '\n\n\n\n\n\nnone\n\n\n']], "--config_file c.yaml")
    assert.truthy(said:find("train together? [7]: ", 1, true), said)
    assert.truthy(said:find("no limit)? [2G]: ", 1, true))
    local text = read "c.yaml"
    assert.truthy(text:find("num_processes: 7\n", 1, true) and text:find("patience: 3\n", 1, true))
    assert.is_nil(text:find "max_memory")
  end)

  it("leaves no file at Ctrl-C or when the answers end, and a file that was there as it was", function()
    local said = at_terminal([[printf '3\n2\n'; sleep 1; printf '\003'; sleep 1]], "--config_file c.yaml")
    assert.matches("%[130%]\n$", said)
    assert.is_nil(read "c.yaml")
    write("c.yaml", "num_processes: 7\n")
    said = at_terminal([[printf '3\n2\n']], "--config_file c.yaml")
    local line = "accelhost config: the input ended before the questions: nothing is written\n"
    assert.truthy(said:find(line, 1, true), said)
    assert.matches("%[1%]\n$", said)
    assert.equal("num_processes: 7\n", read "c.yaml")
    assert.same({"c.yaml"}, folder.names ".")
  end)

  it("reports that stdin is no terminal", function()
    local result = config({"--config_file", "c.yaml"}, {timeout = 20, stdin = "3\n"})
    assert.equal(2, result.code)
    assert.equal("accelhost config: this asks questions, and stdin is no terminal ('accelhost config default' " ..
      "writes a file without asking)\nTry 'accelhost config --help'.\n", result.stderr)
    assert.is_nil(read "c.yaml")
  end)

  it("does not ask over a file that is wrong", function()
    write("c.yaml", "num_procesess: 7\n")
    local said = at_terminal("printf ''", "--config_file c.yaml")
    assert.truthy(said:find("c.yaml:1: unknown key 'num_procesess'", 1, true), said)
    assert.equal("num_procesess: 7\n", read "c.yaml")
  end)

  it("default writes settings that suit the machine where no file is yet", function()
    local env = {XDG_CONFIG_HOME = require("lfs").currentdir(), ACCELHOST_CONFIG_FILE = false}
    local path = env.XDG_CONFIG_HOME .. "/accelhost/default_config.yaml"
    local result = config({"default", "--mixed_precision", "bf16"}, {timeout = 20, env = env})
    assert.same({0, "Written: " .. path .. "\n", ""}, {result.code, result.stdout, result.stderr})
    assert.matches("^# [^\n]+\nnum_processes: %d+\nmixed_precision: 'bf16'\n$",
      read(path))
    result = config({"default"}, {timeout = 20, env = env})
    assert.equal(1, result.code)
    assert.equal("accelhost config: " .. path .. " exists ('accelhost config' asks for changes)\n",
      result.stderr)
    assert.matches("\nsettings +" .. path:gsub("%p", "%%%0") .. "\n", run.host({"env"}, {env = env}).stdout)
  end)

  it("writes no key that launch does not read", function()
    assert.equal(0, config({"default", "--config_file", "read.yaml", "--mixed_precision", "bf16"}).code)
    local shown = run.host({"launch", "--config_file", "read.yaml", "--show_config"}, {timeout = 20}).stdout
    local line, keys = 0, 0
    for text in read("read.yaml"):gmatch "[^\n]*" do
      local key = text:match "^([%w_]+):"
      if text ~= "" then line = line + 1 end
      if key then
        keys = keys + 1
        assert.matches("\n" .. key .. " +%S+ +read%.yaml:" .. line .. "\n", "\n" .. shown)
      end
    end
    assert.is_true(keys >= 2)
    os.remove "read.yaml"
  end)

  it("show prints each setting and its source", function()
    write("c.json", [[{"num_processes": 3, "rdzv_backend": "static"}]])
    local result = config({"show", "--config_file", "c.json"}, {timeout = 20, env = {ACCELHOST_TIMEOUT = "7"}})
    run.succeeds(result)
    assert.matches("^config_file +c.json\nnum_processes +3 +c.json\n", result.stdout)
    assert.matches("\ntimeout +7 +ACCELHOST_TIMEOUT\n", result.stdout)
    assert.truthy(result.stdout:find("accepted from the file without effect: rdzv_backend\n", 1, true))
    result = config {"show", "--config_file", "none.yaml"}
    assert.same({2, "accelhost config: cannot read 'none.yaml': No such file or directory\n" ..
      "Try 'accelhost config --help'.\n"}, {result.code, result.stderr})
  end)

  it("update writes a file of Accelerate's in our names, and reports the parts left out", function()
    write("c.yaml", "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nuse_cpu: yes\nmixed_precision: 'no'\n" ..
      "nproc_per_node: 2\n")
    local result = config {"update", "--config_file", "c.yaml"}
    assert.equal("Written: c.yaml\nOmitted, as no other value is possible: compute_environment\n",
      result.stdout)
    assert.equal(first .. "nproc_per_node: 2\ncpu: true\nnum_machines: 1\nmixed_precision: 'no'\n", read "c.yaml")
    write("c.json", [[{"num_processes": 2, "timeout": 1.5, "cpu": true, "max_memory": "2G"}]])
    assert.equal(0, config({"update", "--config_file", "c.json"}).code)
    assert.same({num_processes = 2, timeout = 1.5, cpu = true, max_memory = "2G"},
      require("accelhost").json.decode(read "c.json"))
    write("c.yaml", "fsdp_config:\n  fsdp_version: 2\n")
    assert.equal(2, config({"update", "--config_file", "c.yaml"}).code)
    assert.equal("fsdp_config:\n  fsdp_version: 2\n", read "c.yaml")
  end)

  it("leaves nothing where a file cannot be written", function()
    local result = config {"default", "--config_file", "/proc/none/c.yaml"}
    assert.equal(1, result.code)
    assert.matches("accelhost config: /proc/none/c.yaml: cannot make the folder /proc/none", result.stderr)
    if os.getenv "TSAN_OPTIONS" then return pending "needs a build without ThreadSanitizer, which writes files" end
    result = run.program({"bash", "-c", [[( ulimit -f 0; exec "$0" config default --config_file c.yaml ) 2>&1 | cat
      exit ${PIPESTATUS[0]}]], run.path}, {timeout = 20})
    assert.same({1, "accelhost config: c.yaml: cannot write: File too large\n"}, {result.code, result.stdout})
    assert.same({}, folder.names ".")
    assert.matches("ACCELHOST_CONFIG_FILE is empty", config({"default"}).stderr)
  end)

  it("refuses words and options that it does not know", function()
    for words, line in pairs {
      [{"defalt"}] = "there is no 'defalt' (did you mean 'default'?)",
      [{"zzz"}] = "there is no 'zzz' (known: default, show, update, keys)",
      [{"show", "more"}] = "unexpected argument 'more'",
      [{"show", "--mixed_precision", "no"}] = "--mixed_precision is for 'accelhost config default'",
      [{"--config-fil", "x"}] = "unknown option '--config-fil' (did you mean '--config_file'?)",
      [{"default", "--config_file", "x", "--mixed_precision", "fp7"}] =
        "--mixed_precision expects no, bf16, fp16 or fp8, got 'fp7'",
    } do
      local result = config(words)
      assert.same({2, "accelhost config: " .. line .. "\nTry 'accelhost config --help'.\n"},
        {result.code, result.stderr})
    end
  end)
end)

describe("the table of settings", function()
  it("in the guide is the one that the program prints", function()
    local keys = config({"keys"}).stdout
    assert.matches("^| flag and key | variables | default | description |\n", keys)
    local guide = read "examples/guides/settings.md"
    assert.truthy(guide:find(keys, 1, true), "run: accelhost config keys, and put it into examples/guides/settings.md")
  end)

  it("describes every row as launch --help describes its option, and --help has no other options", function()
    local keys, help = config({"keys"}).stdout, run.host({"launch", "--help"}, {timeout = 20}).stdout
    -- Each option of the help: its name, and all of its text on one line.
    local told, name = {}, nil
    for line in (help:match "\n\noptions:\n(.-)\nkill %-USR2"):gmatch "[^\n]+" do
      local option, rest = line:match "^  %-%-([%w_]+)(.*)$"
      if option then
        name = option
        told[name] = rest:gsub("^ [^ ]+", "")
      elseif name then
        told[name] = told[name] .. " " .. line
      end
    end
    local rows = 0
    for names, default, text in keys:match "^(.-)\nRefused":gmatch "\n| ([^|]*`[^|]*) |[^|]*| ([^|]*) | ([^|]*) |" do
      rows = rows + 1
      local own = names:match "`([^`]+)`"
      local said = assert(told[own], "--help lacks --" .. own):gsub("%s+", " ")
      for word in text:gsub(" %(no key%)$", ""):gsub("`", ""):gsub("; only .*", ""):gmatch "%S+" do
        assert.truthy(said:find(word, 1, true), ("--help describes --%s as: %s; the table: %s"):format(own, said, text))
      end
      for short in names:gmatch "`(%-[^`]+)`" do assert.truthy(said:find(short, 1, true), own .. ": " .. short) end
      if default ~= "" and default ~= "false" and not said:find "only" then
        assert.truthy(said:find("default " .. default, 1, true), own .. ": default " .. default)
      end
      told[own] = nil
    end
    assert.is_true(rows > 20)
    told.help = nil
    assert.same({}, told)
  end)
end)
