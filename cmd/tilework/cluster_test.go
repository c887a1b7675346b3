package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"tilework/ranks"
)

const clusterFolder = "../../examples/cluster/"

// checkMul checks that words are a command line of mul with valid flags, which takes the rank from
// a launcher.
func checkMul(t *testing.T, words []string) {
	t.Helper()
	if len(words) < 2 || words[0] != "tilework" {
		t.Fatalf("command %q, want tilework", words)
	}
	c, rest, err := newCommand().Find(words[1:])
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil || c.Name() != "mul" || c.Flag("ranks").Value.String() != ranksFromLauncher {
		t.Errorf("command %q: verb %s, --ranks %v, error %v", words, c.Name(), c.Flag("ranks").Value, err)
	}
}

// TestSlurmManifest checks the command and the options of the Slurm job.
func TestSlurmManifest(t *testing.T) {
	text, err := os.ReadFile(clusterFolder + "mul.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#SBATCH --([a-z-]+)=(\S+)$`).FindAllStringSubmatch(string(text), -1) {
		options[m[1]] = m[2]
	}
	for _, name := range []string{"nodes", "ntasks-per-node", "gpus-per-task", "cpus-per-task"} {
		if n, err := strconv.Atoi(options[name]); err != nil || n < 1 {
			t.Errorf("option --%s is %q, want a number", name, options[name])
		}
	}
	srun := regexp.MustCompile(`(?m)^srun --kill-on-bad-exit=1 (tilework .*)$`).FindSubmatch(text)
	if srun == nil {
		t.Fatal("no line that starts with srun and a command")
	}
	checkMul(t, strings.Fields(string(srun[1])))
	if !strings.HasPrefix(string(text), "#!/bin/bash\n#SBATCH") ||
		!strings.Contains(string(text), "\nexport "+ranks.EnvSecret+"\n") {
		t.Error("want #SBATCH options below the first line, and an exported secret")
	}
}

// manifest is a Kubernetes object, with the fields that mul.yaml uses.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		ClusterIP                string            `yaml:"clusterIP"`
		PublishNotReadyAddresses bool              `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string // of the service
		CompletionMode           string            `yaml:"completionMode"`
		Completions, Parallelism int
		BackoffLimit             *int `yaml:"backoffLimit"`
		Template                 struct {
			Spec struct {
				Subdomain     string
				RestartPolicy string `yaml:"restartPolicy"`
				Containers    []struct {
					Name, Image  string
					Command      []string
					Env          []struct{ Name, Value string }
					Resources    struct{ Limits map[string]int }
					VolumeMounts []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
						ReadOnly  bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct {
					Name                  string
					PersistentVolumeClaim struct {
						ClaimName string `yaml:"claimName"`
					} `yaml:"persistentVolumeClaim"`
					Secret struct {
						SecretName  string      `yaml:"secretName"`
						DefaultMode os.FileMode `yaml:"defaultMode"`
					}
				}
			}
		}
	}
}

// TestKubernetesManifest checks that the objects of mul.yaml and the commands of the page refer to
// each other, and that the command and its variables are those of mul.
func TestKubernetesManifest(t *testing.T) {
	file, err := os.Open(clusterFolder + "mul.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file, yaml.DisallowUnknownField())
	objects := map[string]manifest{}
	for {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		objects[m.APIVersion+" "+m.Kind] = m
	}
	service, job := objects["v1 Service"], objects["batch/v1 Job"]
	pod := job.Spec.Template.Spec
	if len(objects) != 2 || len(pod.Containers) != 1 {
		t.Fatalf("%d objects and %d containers, want a service, a job and one container", len(objects), len(pod.Containers))
	}
	container := pod.Containers[0]
	checkMul(t, container.Command)
	if service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses ||
		service.Spec.Selector["job-name"] != job.Metadata.Name || pod.Subdomain != service.Metadata.Name {
		t.Errorf("service %+v of the job %s with subdomain %s", service.Spec, job.Metadata.Name, pod.Subdomain)
	}
	if job.Spec.CompletionMode != "Indexed" || job.Spec.Completions != job.Spec.Parallelism ||
		job.Spec.BackoffLimit == nil || *job.Spec.BackoffLimit != 0 || pod.RestartPolicy != "Never" {
		t.Errorf("job %+v", job.Spec)
	}
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
	}
	host, port, _ := strings.Cut(env[ranks.EnvAddress], ":")
	if env[ranks.EnvRanks] != strconv.Itoa(job.Spec.Completions) ||
		host != job.Metadata.Name+"-0."+service.Metadata.Name || port == "" {
		t.Errorf("variables %v of %d ranks", env, job.Spec.Completions)
	}
	mounts := map[string]string{}
	for _, m := range container.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	page, err := os.ReadFile(clusterFolder + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Volumes {
		path := mounts[v.Name]
		switch {
		case v.Secret.SecretName != "":
			key, within := strings.CutPrefix(env[ranks.EnvSecretFile], path+"/")
			create := "kubectl create secret generic " + v.Secret.SecretName + " --from-literal=" + key + "="
			if !within || !strings.Contains(string(page), create) || v.Secret.DefaultMode != 0o400 {
				t.Errorf("secret at %s, file %s, mode %v: want %q in the page, and only its owner to read it", path,
					env[ranks.EnvSecretFile], v.Secret.DefaultMode, create)
			}
		case v.PersistentVolumeClaim.ClaimName != "":
			if !strings.Contains(string(page), "`"+v.PersistentVolumeClaim.ClaimName+"`") ||
				!slices.Contains(container.Command, path+"/c.npy") {
				t.Errorf("claim %s at %s", v.PersistentVolumeClaim.ClaimName, path)
			}
		}
		delete(mounts, v.Name)
	}
	if len(mounts) > 0 {
		t.Errorf("mounts without a volume: %v", mounts)
	}
}
