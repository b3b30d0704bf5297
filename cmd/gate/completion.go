package main

import (
	"fmt"
	"strings"
)

func completionSyntax() syntax { return syntax{name: "completion", operands: 1} }

// completionCommand is gate completion SHELL. The scripts are made from the
// same tables that parse the command line.
func (a *app) completionCommand(args []string) (int, error) {
	p, err := completionSyntax().parse(args)
	if err != nil {
		return 0, err
	}
	shells := map[string]func([]command) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if len(p.operands) == 0 {
		return 0, hint(fmt.Errorf("no shell named"), "gate completion bash|zsh|fish")
	}
	script := shells[p.operands[0]]
	if script == nil {
		return 0, hint(fmt.Errorf("no completion for the shell %q", p.operands[0]), "want bash, zsh or fish")
	}
	return 0, a.print(script(commands()))
}

// flagWords lists the flags of a subcommand.
func flagWords(c command) []string {
	words := []string{"--help"}
	for _, o := range c.syntax.options {
		words = append(words, "--"+o.name)
	}
	return words
}

// bashCompletion offers subcommands, then flags, then files; after "--" it
// leaves the rest to the command's own completion.
func bashCompletion(all []command) string {
	var names, cases strings.Builder
	for _, c := range all {
		names.WriteString(" " + c.name)
		fmt.Fprintf(&cases, "\t\t%s) words='%s' ;;\n", c.name, strings.Join(flagWords(c), " "))
	}
	return `# bash completion for gate
_gate() {
	local cur=${COMP_WORDS[COMP_CWORD]} words i
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W '` + names.String()[1:] + `' -- "$cur"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			fi
			return
		fi
	done
	case ${COMP_WORDS[1]} in
` + cases.String() + `		*) return ;;
	esac
	[[ $cur == -* ]] && COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _gate gate
`
}

// zshCompletion is the same for zsh.
func zshCompletion(all []command) string {
	var names, cases strings.Builder
	for _, c := range all {
		fmt.Fprintf(&names, "\t\t'%s:%s'\n", c.name, c.about)
		fmt.Fprintf(&cases, "\t%s) flags=(%s) ;;\n", c.name, strings.Join(flagWords(c), " "))
	}
	return `#compdef gate
_gate() {
	local -a subcommands flags
	subcommands=(
` + names.String() + `	)
	if ((CURRENT == 2)); then
		_describe subcommand subcommands
		return
	fi
	local dashes=${words[(i)--]}
	if ((dashes < CURRENT)); then
		shift $dashes words
		((CURRENT -= dashes))
		_normal
		return
	fi
	case ${words[2]} in
` + cases.String() + `	esac
	if [[ ${words[CURRENT]} == -* ]]; then
		compadd -- $flags
	else
		_files
	fi
}
compdef _gate gate
`
}

// fishCompletion is the same for fish.
func fishCompletion(all []command) string {
	var b strings.Builder
	b.WriteString("# fish completion for gate\n")
	for _, c := range all {
		fmt.Fprintf(&b, "complete -c gate -n __fish_use_subcommand -f -a %s -d '%s'\n", c.name, c.about)
		for _, o := range c.syntax.options {
			arg := ""
			if o.value != "" {
				arg = " -r"
			}
			fmt.Fprintf(&b, "complete -c gate -n '__fish_seen_subcommand_from %s' -l %s%s\n", c.name, o.name, arg)
		}
	}
	return b.String()
}
