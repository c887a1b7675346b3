package ptx
import ("testing";"os";"path/filepath";"fmt")
func TestCorpus(t *testing.T){
 fs,_:=filepath.Glob("testdata/nvcc/*.ptx")
 for _,f:=range fs{ b,_:=os.ReadFile(f); m,err:=Parse(filepath.Base(f),string(b)); if err!=nil{fmt.Println(err);t.Fail();continue}
 if err:=Verify(m);err!=nil{fmt.Println(err);t.Fail()}
 fmt.Println(f, m.Version,m.Target,m.Need())
 }
}
