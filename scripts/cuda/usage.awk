# The lines of usage.sh as a table with one row for each kernel; a second file is a table whose rows are kept as far as
# they are of other files.
FNR != NR {
    if ($4 ~ /\.cu$/ && !($4 in compiled)) kept[++keeps] = $0
    next
}
FNR == 1 { next }
{
    compiled[$2] = 1
    if (!($1 in file)) {
        file[$1] = $2
        order[++count] = $1
    }
    if (!($3 in known)) {
        known[$3] = 1
        arch[++arches] = $3
    }
    registers[$1, $3] = $4
    if ($5 > shared[$1]) shared[$1] = $5
    spills[$1] += $6
}
END {
    print "<!-- Written by scripts/cuda/usage.sh (make cuda-usage). -->\n"
    print "# Registers and shared memory of the CUDA kernels\n"
    print "As ptxas reports them. Shared memory is a block's static amount, without what a launch adds."
    printf "\n| kernel | file |"
    for (i = 1; i <= arches; i++) printf " sm_%s |", arch[i]
    printf " shared | spills |\n| --- | --- |"
    for (i = 1; i <= arches; i++) printf " --- |"
    print " --- | --- |"
    fflush()
    by_file = "LC_ALL=C sort -t '|' -k 3,3 -k 2,2"
    for (k = 1; k <= keeps; k++) print kept[k] | by_file
    for (k = 1; k <= count; k++) {
        row = "| " order[k] " | " file[order[k]] " |"
        for (i = 1; i <= arches; i++) row = row " " registers[order[k], arch[i]] " |"
        print row " " shared[order[k]] + 0 " | " spills[order[k]] + 0 " |" | by_file
    }
}
